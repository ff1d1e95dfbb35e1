"""The command line run inside the test's process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Answer:
    """What one run of ``dynosim`` left: its exit code and the two streams."""

    code: int
    out: str
    err: str


@pytest.fixture
def dynosim(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Answer]:
    """Runs the command line with the given words in an empty folder, on a 100-column terminal."""
    from dynosim.cli import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "24")

    def call(*words: str | Path) -> Answer:
        capfd.readouterr()
        code = run([str(word) for word in words])
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return call
