"""Exit codes: 0 done, 1 a defect, 2 the user's input, 130 Ctrl-C, 141 the reader went away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynosim.commands import list as list_module


def break_listing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail() -> tuple[str, ...]:
        raise error

    shelf = list_module.Shelf(fail, (), list, dict)
    monkeypatch.setitem(list_module.SHELVES, "gpus", shelf)


def test_a_defect_is_short_and_says_how_to_see_more(
    dynosim: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_listing(monkeypatch, ZeroDivisionError("3 / 0"))
    answer = dynosim("list", "gpus")
    assert answer.code == 1
    assert "ZeroDivisionError: 3 / 0" in answer.err
    assert "--debug" in answer.err
    assert "Traceback" not in answer.err


def test_debug_raises_the_defect(
    dynosim: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_listing(monkeypatch, ZeroDivisionError("3 / 0"))
    with pytest.raises(ZeroDivisionError):
        dynosim("list", "gpus", "--debug")


def test_interrupted(dynosim: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    break_listing(monkeypatch, KeyboardInterrupt())
    answer = dynosim("list", "gpus")
    assert (answer.code, answer.err) == (130, "error: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently there")
def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dynosim", "list", "models", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_module_and_exit_code_reach_the_shell(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dynosim", "list", "gpus", "no such gpu"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: unknown gpu 'no such gpu'")
