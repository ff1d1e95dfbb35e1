"""The target that runs a candidate on the built-in engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from affine_timer import AffineTimer
from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate
from dynosim.sim.deployment import Deployment
from dynosim.sim.engine_limits import engine_limits
from dynosim.verification.find_target import find_target
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun
from dynosim.verification.stepped.clocks import Replayed
from dynosim.verification.stepped.run import run_stepped
from dynosim.verification.stepped.simulated import SimulatedEngine
from dynosim.verification.stepped.step_record import read_step_log
from dynosim.verification.target import TargetOptions
from dynosim.verification.targets.builtin_torch import check, engine_options
from dynosim.verification.torch_engine.build import GRAPH_SIZES, graph_sizes
from dynosim.verification.torch_engine.throttling import throttle_notes
from stand_ins import TINY_LLAMA, candidate_of

TINY = TINY_LLAMA | {"hidden_act": "silu", "torch_dtype": "bfloat16"}
DEPLOYMENT: dict[str, Any] = {
    "gpu": "h100",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
    "max_model_len": 128,
    "num_gpu_blocks_override": 15,
    "async_scheduling": False,
}
PLAN = LoadPlan(
    prompts=tuple(range(i, i + 40) for i in range(6)),
    output_tokens=(24, 40, 24, 5, 30, 24),
    send_s=None,
    max_concurrency=4,
    warmup=1,
)


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return str(tmp_path / "config.json")


def candidate(model: str, **changes: Any) -> Candidate:
    return candidate_of(Deployment(model=model, **DEPLOYMENT | changes))


def test_an_engine_is_built_from_what_was_predicted(model: str) -> None:
    found = engine_options(candidate(model))
    assert found.num_blocks == 14, "one of vLLM's is its null block"
    assert (found.limits.max_num_seqs, found.limits.max_num_batched_tokens) == (4, 64)
    assert (found.dtype, found.max_model_len, found.graphs) == ("bfloat16", 128, True)
    assert not engine_options(candidate(model, enforce_eager=True)).graphs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "sglang"}, "builtin-torch does not run sglang"),
        ({"replicas": 2}, "replicas: builtin-torch has no 2"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size: builtin-torch has no 2"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype: builtin-torch has no fp8"),
        ({"quantization": "fp8"}, "quantization: builtin-torch has no fp8"),
        ({"async_scheduling": True}, "async_scheduling: builtin-torch has no True"),
    ],
)
def test_what_it_cannot_be_is_refused_by_field(
    model: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check(candidate(model, **changes))


def measured(model: str, folder: Path, times: int = 1) -> list[ObservedRun]:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dynosim[measure]'")
    target = find_target("builtin-torch", TargetOptions(folder=folder, device="cpu"))
    with target.run(candidate(model)) as running:
        found = [running.measure(PLAN) for _ in range(times)]
    with pytest.raises(AssertionError, match="the engine has ended"):
        running.measure(PLAN)
    return found


def test_every_request_is_answered_and_the_run_says_on_what(model: str, tmp_path: Path) -> None:
    (run,) = measured(model, tmp_path / "here")
    assert [request.index for request in run.requests] == [1, 2, 3, 4, 5]
    assert [request.output_tokens for request in run.requests] == [40, 24, 5, 30, 24]
    assert all(request.error is None for request in run.requests)
    assert run.clock == "process-cpu, probed"
    assert run.facts["kv_cache_tokens"] == 15 * 16, "as vLLM logs it"
    assert run.facts["dtype"] == "float32"
    assert {"torch", "device", "probe_drift"} <= run.facts.keys()


def test_the_simulator_makes_the_same_steps_at_the_same_times(model: str, tmp_path: Path) -> None:
    runs = measured(model, tmp_path, times=2)
    limits = engine_limits(candidate(model).engine, leap=False)
    for number, run in enumerate(runs, 1):
        facts, steps = read_step_log(tmp_path / f"steps-{number}.jsonl.gz")
        assert any(step.preempted for step in steps), "the cache is too large to tell"
        engine = SimulatedEngine(AffineTimer(), limits, 14)
        ours = run_stepped(PLAN, engine, Replayed(step.cost_s for step in steps))
        assert len(ours.warmup_steps) == facts["warmup_steps"]
        made = ours.warmup_steps + ours.steps
        assert [step.did for step in made] == [step.did for step in steps]
        assert ours.observed.requests == run.requests


@pytest.mark.parametrize(("seqs", "largest"), [(1, 1), (4, 4), (5, 8), (256, 256), (1000, 256)])
def test_graphs_are_captured_up_to_the_first_that_holds_every_sequence(
    seqs: int, largest: int
) -> None:
    found = graph_sizes(seqs)
    assert found[-1] == largest
    assert found == [size for size in GRAPH_SIZES if size <= largest]


def test_why_clocks_were_low_is_said_in_words() -> None:
    idle, capped, hot = 0x1, 0x4, 0x20
    assert throttle_notes([None, {"throttle_reasons": idle}, {"sm_clock_mhz": 1980}]) == []
    assert throttle_notes([{"throttle_reasons": capped | hot}, {"throttle_reasons": capped}]) == [
        "clocks were low for the power limit",
        "clocks were low for heat, by the driver",
    ]
