"""The simulator makes the steps that a whole vLLM engine made, with a model and measured costs.

The other recordings are of vLLM's scheduler alone, on a clock of whole steps. These are of its
engine on a CPU (`examples/verify_cpu`, docs/verification.md): requests arrive in the middle of
steps that take as long as they took.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.workload.columns import Workload
from dynosim.verification.load.plan import plan_load
from dynosim.verification.load.token_ids import TokenIds
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.step_parity import difference_to
from dynosim.verification.stepped.simulated import SimulatedEngine
from dynosim.verification.stepped.step_record import StepRecord, read_step_log
from replay import UnitTimer

FOLDER = Path(__file__).parent / "data" / "vllm_engine"
RUNS: dict[str, Any] = json.loads((FOLDER / "runs.json").read_text())


def limits_of(options: dict[str, Any]) -> EngineLimits:
    return EngineLimits(**{k: v for k, v in options.items() if k != "num_blocks"}, max_run=1)


def plan_of(run: dict[str, Any]) -> LoadPlan:
    columns = run["load"]
    load = Workload(
        name="recorded",
        arrival_s=np.array(columns["arrival_s"], dtype=np.float64),
        **{
            name: np.array(columns[name], dtype=np.int64)
            for name in ("input_tokens", "output_tokens", "prefix_ids", "prefix_offsets")
        },
        prefix_block_tokens=columns["prefix_block_tokens"],
        max_concurrency=columns["max_concurrency"],
    )
    return plan_load(load.check(), TokenIds(first=1000, end=31_000), warmup=run["warmup"])


def recorded(name: str) -> tuple[tuple[StepRecord, ...], int]:
    facts, steps = read_step_log(FOLDER / f"{name}.jsonl.gz")
    assert facts["vllm"] == "0.32.0"
    return steps, int(facts["warmup_steps"])


@pytest.mark.parametrize("name", RUNS)
def test_every_step_is_the_same(name: str) -> None:
    run = RUNS[name]
    options = run["options"]
    twin = SimulatedEngine(UnitTimer(), limits_of(options), options["num_blocks"])
    steps, warmup = recorded(name)
    assert difference_to(twin, plan_of(run), steps, warmup) is None


def test_the_recordings_have_what_is_hard() -> None:
    """Preemptions, prefixes found in the cache, chunks of long prompts, arrivals amid steps."""
    steps = [step for name in RUNS for step in recorded(name)[0]]
    assert sum(len(step.preempted) for step in steps) > 10
    assert any(work.context_tokens > 0 for step in steps for work in step.chunks)
    assert any(len(step.chunks) > 1 and step.decodes for step in steps)
    assert any(run["load"]["max_concurrency"] is None for run in RUNS.values())


def test_another_limit_makes_other_steps() -> None:
    """The comparison can fail."""
    name, run = next(iter(RUNS.items()))
    options = run["options"] | {
        "max_num_batched_tokens": run["options"]["max_num_batched_tokens"] - 1
    }
    twin = SimulatedEngine(UnitTimer(), limits_of(options), options["num_blocks"])
    steps, warmup = recorded(name)
    assert difference_to(twin, plan_of(run), steps, warmup) is not None
