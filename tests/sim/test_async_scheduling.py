"""Asynchronous scheduling, step by step: a batch is formed while the one before it runs.

``docs/async-scheduling.md`` has the rule and its sources. Every step takes a quarter of a second,
so that all times are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from affine_timer import AffineTimer
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.deployment import Deployment
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.results import RunResult
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec
from workloads import workload

STEP_S = 0.25
SCHEDULERS = ["vllm", "sglang", "trtllm"]
BOTH = [False, True]


def run(
    load: Workload,
    scheduler: str = "vllm",
    is_async: bool = True,
    num_blocks: int = 100,
    per_sequence_s: float = 0.0,
    **limits: Any,
) -> RunResult:
    timer = AffineTimer(
        base_s=STEP_S,
        per_token_s=0.0,
        per_pair_s=0.0,
        per_sequence_s=per_sequence_s,
        per_context_s=0.0,
    )
    spec = ClusterSpec(
        timer=timer,
        limits=EngineLimits(
            **{"max_num_seqs": 8, "max_num_batched_tokens": 512} | limits,
            scheduler=scheduler,
            scheduling_policy="guaranteed_no_evict" if scheduler == "trtllm" else "fcfs",
            async_scheduling=is_async,
        ),
        num_blocks=num_blocks,
        max_model_len=10_000,
    )
    return run_cluster(spec, load)


def steps(result: RunResult, request: int) -> list[int]:
    """Returns the numbers of the steps, from 1, at whose ends a request got its tokens."""
    return [round(time_s / STEP_S) for time_s in result.token_times_s(request).tolist()]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("is_async", BOTH)
def test_a_request_alone_enters_at_once(scheduler: str, is_async: bool) -> None:
    result = run(workload([0.0], [10], [3]), scheduler, is_async)
    assert steps(result, 0) == [1, 2, 3]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(("is_async", "first"), [(False, 6), (True, 7)])
def test_an_arrival_during_a_step_enters_the_next_but_one(
    scheduler: str, is_async: bool, first: int
) -> None:
    # In the fifth step, which lasts from 1.0 to 1.25 s.
    result = run(workload([0.0, 1.1], [10, 10], [40, 1]), scheduler, is_async)
    assert steps(result, 1) == [first]


@pytest.mark.parametrize(("arrival_s", "first"), [(1.0, 6), (1.01, 7), (1.25, 7), (1.26, 8)])
def test_an_arrival_at_a_boundary_belongs_to_the_step_that_ends(
    arrival_s: float, first: int
) -> None:
    result = run(workload([0.0, arrival_s], [10, 10], [40, 1]))
    assert steps(result, 1) == [first]


def test_several_arrivals_each_wait_for_their_own_step() -> None:
    result = run(workload([0.0, 1.1, 1.2, 1.3, 1.6], [10] * 5, [40, 1, 1, 1, 1]))
    assert [steps(result, i)[0] for i in range(1, 5)] == [7, 7, 8, 9]


def test_a_prompt_goes_on_and_starts_to_decode_without_a_gap() -> None:
    # Chunks of 4: 4 + 4 + 2 tokens, then a token a step.
    result = run(workload([0.0], [10], [3]), max_num_batched_tokens=4)
    assert steps(result, 0) == [3, 4, 5]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(("is_async", "first"), [(False, 4), (True, 5)])
def test_a_slot_is_free_one_step_late(scheduler: str, is_async: bool, first: int) -> None:
    # Two slots: requests 0 and 1 take them, 0 ends with step 3, 2 waits from the start.
    load = workload([0.0, 0.0, 0.0], [10] * 3, [3, 40, 1])
    if scheduler == "sglang":
        # Its synchronous scheduler notices a decode's end one decode step late by itself.
        first += 1
    assert steps(run(load, scheduler, is_async, max_num_seqs=2), 2) == [first]


@pytest.mark.parametrize(("is_async", "first"), [(False, 4), (True, 5)])
def test_blocks_are_free_one_step_late(is_async: bool, first: int) -> None:
    # Blocks of 16: request 0 holds 3 of 5, request 1 one; request 2 needs 3.
    load = workload([0.0, 0.0, 0.0], [40, 10, 40], [3, 6, 1])
    assert steps(run(load, is_async=is_async, num_blocks=5), 2) == [first]


@pytest.mark.parametrize("scheduler", ["vllm", "trtllm"])
@pytest.mark.parametrize("is_async", BOTH)
def test_where_nobody_else_runs_there_is_nothing_to_be_late_for(
    scheduler: str, is_async: bool
) -> None:
    # One slot. While request 0 gets its last token there is no batch that could be formed.
    load = workload([0.0, 0.0, 1.1], [10] * 3, [3, 2, 1])
    result = run(load, scheduler, is_async, max_num_seqs=1)
    assert [steps(result, i) for i in range(3)] == [[1, 2, 3], [4, 5], [6]]


def test_sglang_computes_one_more_token_for_who_has_ended() -> None:
    # 0.25 s a step and as much for each that decodes in it; prefill alone in step 1.
    load = workload([0.0, 0.0], [10, 10], [2, 4])
    on, off = (run(load, "sglang", a, per_sequence_s=STEP_S) for a in (True, False))
    np.testing.assert_allclose(off.token_times_s(1), [0.25, 1.0, 1.5, 2.0])
    np.testing.assert_allclose(on.token_times_s(1), [0.25, 1.0, 1.75, 2.25])
    vllm = run(load, "vllm", per_sequence_s=STEP_S)
    np.testing.assert_allclose(vllm.token_times_s(1), [0.25, 1.0, 1.5, 2.0])


def test_sglang_runs_a_step_of_nobody_that_an_arrival_waits_for() -> None:
    # Request 0 ends with step 3, and step 4 computes a token of it that nobody wants. Request 1
    # arrives in step 3, after the batch of step 4 was formed.
    assert steps(run(workload([0.0, 0.6], [10, 10], [3, 1]), "sglang"), 1) == [5]
    assert steps(run(workload([0.0, 0.6], [10, 10], [3, 1]), "vllm"), 1) == [4]


@pytest.mark.parametrize("scheduler", ["sglang", "trtllm"])
@pytest.mark.parametrize(("is_async", "hits"), [(False, 32), (True, 0)])
def test_a_prompt_is_found_once_its_results_are_known(
    scheduler: str, is_async: bool, hits: int
) -> None:
    # Blocks of 16. Both prompts begin alike; the second enters in the step after the first's.
    load = workload([0.0, 0.0], [40, 40], [9, 9], [[1, 2], [1, 2]], block=16)
    result = run(load, scheduler, is_async, max_num_batched_tokens=48)
    assert result.cached_tokens.tolist() == [0, hits]


def test_vllm_finds_a_prompt_from_when_it_is_scheduled() -> None:
    load = workload([0.0, 0.0], [40, 40], [9, 9], [[1, 2], [1, 2]], block=16)
    assert run(load, max_num_batched_tokens=40).cached_tokens.tolist() == [0, 32]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_at_low_load_the_first_token_is_a_step_later_when_others_run(scheduler: str) -> None:
    # One long answer keeps the engine busy; prompts come in between at odd times.
    arrivals = [0.0, *(10.0 + 7.1 * i for i in range(40))]
    load = workload(arrivals, [10] * 41, [1300, *[2] * 40])
    first_s = [
        np.array([run(load, scheduler, a).token_times_s(i)[0] for i in range(1, 41)]) for a in BOTH
    ]
    np.testing.assert_allclose(first_s[1] - first_s[0], STEP_S)


@pytest.mark.parametrize(
    ("backend", "version", "default"),
    [("vllm", "0.11.0", False), ("vllm", "0.14.0", True), ("sglang", None, True)],
)
def test_the_default_is_that_of_the_version(
    backend: str, version: str | None, default: bool
) -> None:
    def args(**more: Any) -> EngineArgs:
        names = {"model": "Qwen/Qwen3-8B", "gpu": "H100", "backend": backend}
        return resolve_engine(EngineArgs(**names, backend_version=version, **more)).args

    assert args().async_scheduling is default
    assert args(async_scheduling=not default).async_scheduling is not default


@pytest.mark.parametrize("backend", SCHEDULERS)
def test_it_trades_a_later_first_token_for_faster_ones(backend: str) -> None:
    spec = WorkloadSpec(
        random_input_len=200, random_output_len=100, request_rate=4.0, num_prompts=200
    )
    load = build_workload(spec)
    off, on = (
        simulate(
            Deployment(model="Qwen/Qwen3-8B", gpu="H100", backend=backend, async_scheduling=a), load
        ).metrics()
        for a in BOTH
    )
    assert on["mean_tpot_ms"] < off["mean_tpot_ms"], "host time is hidden"
    step_ms = on["mean_tpot_ms"]
    assert 0.3 * step_ms < on["mean_ttft_ms"] - off["mean_ttft_ms"] < 1.5 * step_ms
