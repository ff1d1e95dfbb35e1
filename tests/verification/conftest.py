"""A search's run that the tests verify, and the command line inside of the test's process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

SPACE = {
    "model": "Qwen/Qwen3-8B",
    "gpu": "h100",
    "backend_version": "0.19.0",
    "tensor_parallel_size": [1, 2],
    "max_num_seqs": [4, 16, 64],
    "workload": {
        "isl": 300,
        "osl": 16,
        "num_prompts": 40,
        "max_concurrency": 20,
        "random_range_ratio": 0.3,
    },
}
"""Six candidates: the frontier has all but the smallest batches of one GPU."""


@dataclass(frozen=True)
class Answer:
    """What one run of ``dynosim`` left: its exit code and the two streams."""

    code: int
    out: str
    err: str


@pytest.fixture
def dynosim(capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs the command line with the given words."""
    from dynosim.cli import run

    def call(*words: str | Path | int) -> Answer:
        capfd.readouterr()
        code = run([str(word) for word in words])
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return call


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a search; to be copied, not changed."""
    from dynosim.search import search

    folder = tmp_path_factory.mktemp("search")
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE), encoding="utf-8")
    search(folder / "space.yaml", output_dir=folder / "run", workers=1)
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the folder of a finished search."""
    return Path(shutil.copytree(finished, tmp_path / "run"))
