"""``--help`` and ``--version`` answer at once: they import nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"numpy", "scipy", "pandas", "optuna", "matplotlib", "pydantic", "simpy", "moocore", "yaml"}


def modules_after(*words: str, cwd: Path) -> set[str]:
    """Returns the top-level modules that a run of ``dynosim`` with these words imports."""
    code = (
        "import sys\n"
        "from dynosim.cli import run\n"
        f"code = run({list(words)!r})\n"
        "print(code, *{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd)
    code_text, *modules = done.stderr.split()
    assert code_text == "0", done.stderr
    return set(modules)


@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_nothing_heavy_is_imported(words: list[str], tmp_path: Path) -> None:
    assert modules_after(*words, cwd=tmp_path) & HEAVY == set()


def test_listing_needs_no_arrays(tmp_path: Path) -> None:
    assert modules_after("list", "gpus", cwd=tmp_path) & (HEAVY - {"yaml", "numpy"}) == set()
