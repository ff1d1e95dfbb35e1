"""What scripts rely on: JSON on stdout, no colour in a pipe, completion that installs itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ENGINE = "--model Qwen/Qwen3-8B --gpu h100 --backend-version 0.19.0"
LOAD = "--isl 100 --osl 20 --num-prompts 20"


@pytest.mark.parametrize(
    "words",
    [
        f"simulate {ENGINE} {LOAD} --json=-",
        f"memory {ENGINE} --json",
        "list gpus h100 --json",
        f"capacity {ENGINE} {LOAD} --slo tpot:8 ttft:200 --seeds 2 --json",
        "plan EXAMPLES/plan/space.yaml --demand 2 --slo ttft:5 --json",
    ],
    ids=lambda words: words.split()[0],
)
def test_json_is_all_there_is_on_stdout(
    words: str, dynosim: Callable[..., Any], checkout: Path
) -> None:
    answer = dynosim(*words.replace("EXAMPLES", str(checkout / "examples")).split())
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)


def test_a_printed_result_is_the_written_one(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    printed = dynosim(*f"simulate {ENGINE} {LOAD} --json=-".split())
    dynosim(*f"simulate {ENGINE} {LOAD} --json out.json".split())
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert json.loads(printed.out) == written


@pytest.mark.parametrize("words", ["--help", f"simulate {ENGINE} {LOAD}", "list gpus no-such"])
def test_a_pipe_gets_no_colour(words: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dynosim", *words.split()]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path)
    assert b"\x1b" not in done.stdout + done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="completion is for POSIX shells")
def test_completion_installs_itself_and_knows_the_flags(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dynosim", "--install-completion"]
    home = os.environ | {"HOME": str(tmp_path), "SHELL": "/bin/bash"}
    home.pop("XDG_DATA_HOME", None)
    done = subprocess.run(command, capture_output=True, text=True, env=home, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (script,) = tmp_path.glob(".local/share/bash-completion/completions/dynosim")
    text = script.read_text(encoding="utf-8")
    assert "capacity" in text
    assert "--tensor-parallel-size" in text
