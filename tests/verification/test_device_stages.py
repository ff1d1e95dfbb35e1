"""The stages of the script for a rented GPU keep to its time. No GPU, and no PyTorch here."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from dynosim.hardware_models.resolve import resolve_engine
from dynosim.question import read_question
from dynosim.sim.workload.spec import ALIASES, WorkloadSpec
from dynosim.verification.torch_engine.decoder_config import read_decoder_config

BUILTIN = Path(__file__).parents[2] / "benchmarks" / "device" / "builtin"

pytestmark = pytest.mark.skipif(
    not BUILTIN.is_dir(), reason="benchmarks are in a checkout only, not in a source distribution"
)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("device_stages", BUILTIN / "stages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "device_stages", module)
    spec.loader.exec_module(module)
    return module


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def scripted(
    clock: Clock, seconds: float, status: str, seen: list[list[str]]
) -> Callable[..., Any]:
    """Returns a command that takes some time and does nothing."""

    def command(argv: list[str], most_s: float) -> tuple[str, float]:
        seen.append(argv)
        took = min(seconds, most_s)
        clock.now_s += took
        return (status if took == seconds else "out of time"), took

    return command


def noted(out: Path) -> dict[str, str]:
    rows = json.loads((out / "summary.json").read_text())["stages"]
    return {row["stage"]: row["status"] for row in rows}


@pytest.mark.parametrize(("budget_s", "rounds"), [(1000.0, 3), (270.0, 2), (165.0, 1)])
def test_as_many_rounds_are_measured_as_the_time_allows(
    stages: ModuleType, tmp_path: Path, budget_s: float, rounds: int
) -> None:
    clock, seen = Clock(), list[list[str]]()
    run = stages.Run(tmp_path, budget_s, clock)
    run.command = scripted(clock, 100.0, "done", seen)
    run.rounds(["verify"])
    assert len(seen) == rounds + 1, "and a conclusion"
    assert seen[-1] == ["verify", "--resume", "--repeats", str(rounds)]
    assert clock.now_s <= budget_s
    assert noted(tmp_path)["conclusion"] in ("done", "out of time")


def test_a_round_that_fails_is_the_last(stages: ModuleType, tmp_path: Path) -> None:
    clock, seen = Clock(), list[list[str]]()
    run = stages.Run(tmp_path, 1000.0, clock)
    run.command = scripted(clock, 10.0, "exit code 2", seen)
    run.rounds(["verify"])
    assert [words[-1] for words in seen] == ["none", "1"]


def test_a_stage_counts_as_done_when_its_result_is_there(
    stages: ModuleType, tmp_path: Path
) -> None:
    run = stages.Run(tmp_path, 60.0)
    made = tmp_path / "made"
    touch = [sys.executable, "-c", "open('made', 'w')"]
    assert run.stage(stages.Stage("make", touch, made, 60.0))
    assert run.stage(stages.Stage("make again", ["no such program"], made, 60.0))
    fails = [sys.executable, "-c", "raise SystemExit(3)"]
    assert not run.stage(stages.Stage("fail", fails, tmp_path / "nothing", 60.0))
    assert noted(tmp_path) == {"make": "done", "make again": "was there", "fail": "exit code 3"}


def test_a_stage_that_takes_too_long_is_ended(stages: ModuleType, tmp_path: Path) -> None:
    run = stages.Run(tmp_path, 0.2)
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert not run.stage(stages.Stage("sleep", sleep, tmp_path / "nothing", 60.0))
    assert noted(tmp_path) == {"sleep": "out of time"}


@pytest.mark.parametrize("setup", ["cpu", "h200"])
def test_every_setup_names_what_there_is(setup: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = BUILTIN / setup
    monkeypatch.chdir(folder)
    told = yaml.safe_load((folder / "setup.yaml").read_text())
    read_decoder_config(told["model"])
    for row in yaml.safe_load((folder / "loads.yaml").read_text()):
        WorkloadSpec(**{ALIASES.get(key, key): value for key, value in row.items()})
    # Neither card nor tables are measured yet.
    served = read_question(str(folder / "served.yaml"), {"gpu": "h200"}).deployment
    engine = resolve_engine(replace(served, kernel_tables=None))
    assert not engine.backend.asynchronous_scheduling
    seconds = sum(told["most_s"].values())
    assert seconds < 500, "the verification needs its time too"
