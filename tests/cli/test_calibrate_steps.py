"""``dynosim calibrate steps``: from step logs to a folder of tables and overheads."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynosim.verification.stepped.step_record import write_step_log
from own_steps import write_logs

FIT = "calibrate steps --deployment served.yaml -o fitted --from"
SIMULATE = """simulate served.yaml --kernel-tables fitted --calibration fitted/overheads.yaml
--isl 100 --osl 10 --num-prompts 20 --max-concurrency 4"""


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    """Two loads, the first in two logs."""
    names = ["few.1.jsonl.gz", "few.2.jsonl.gz", "many.1.jsonl.gz"]
    write_logs(tmp_path, names)
    return names


def test_what_is_written_is_taken(dynosim: Callable[..., Any], logs: list[str]) -> None:
    answer = dynosim(*shlex.split(FIT), *logs)
    assert answer.code == 0, answer.err
    assert "180 steps of 2 loads" in answer.out
    assert "a step                    3.000 ms" in answer.out
    assert "--kernel-tables fitted --calibration fitted/overheads.yaml" in answer.err
    assert "x 1.250, attention x 0.800, as in 180 steps of vllm 0.32.0" in text(
        "fitted/tables.yaml"
    )
    simulated = dynosim(*shlex.split(SIMULATE))
    assert simulated.code == 0, simulated.err


def test_the_figures_come_as_json(dynosim: Callable[..., Any], logs: list[str]) -> None:
    answer = dynosim(*shlex.split(FIT), *logs, "--json", "--quiet")
    found = json.loads(answer.out)
    assert found["host_step_s"] == pytest.approx(3e-3, rel=1e-3)
    assert list(found["held_out"]) == ["few", "many"]
    assert answer.err == ""


def text(name: str) -> str:
    return Path(name).read_text()


def test_steps_of_two_engines_do_not_mix(dynosim: Callable[..., Any], logs: list[str]) -> None:
    write_step_log(Path("few.2.jsonl.gz"), (), {"vllm": "0.24.0"})
    answer = dynosim(*shlex.split(FIT), *logs)
    assert answer.code == 2
    assert "steps of more than one engine" in answer.err


def test_a_file_that_is_no_log_is_told(dynosim: Callable[..., Any], logs: list[str]) -> None:
    answer = dynosim(*shlex.split(FIT), "served.yaml")
    assert answer.code == 2
    assert "served.yaml: no step log" in answer.err


def test_tables_are_needed(dynosim: Callable[..., Any], logs: list[str]) -> None:
    Path("served.yaml").write_text("model: meta-llama/Llama-3.1-8B\ngpu: h100\n")
    answer = dynosim(*shlex.split(FIT), *logs)
    assert answer.code == 2
    assert "kernel_tables: no own tables" in answer.err
