"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Answer:
    """What one run of ``dynosim`` left: its exit code and the two streams."""

    code: int
    out: str
    err: str


@pytest.fixture
def dynosim(capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs the command line with the given words, inside of the test's process."""
    from dynosim.cli import run

    def call(*words: str | Path | int) -> Answer:
        capfd.readouterr()
        code = run([str(word) for word in words])
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return call


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout that the tests stand in."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measured results and real traces; absent outside the developers' machines."""
    configured = os.environ.get("DYNOSIM_SHARED_DATA")
    folder = Path(configured) if configured else CHECKOUT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"measured data folder not present: {folder} (set DYNOSIM_SHARED_DATA)")
    return folder
