"""A leaping engine gives every token the time that a stepping engine gives it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.engine.engine import Engine, EngineLimits
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.metrics import summarize
from dynosim.sim.workload.columns import Workload
from frontends import FRONTENDS
from workloads import workload, workloads

TIMERS = [AffineTimer(), AffineTimer(knee=2000), AffineTimer(per_context_s=0.0)]


def both(spec: ClusterSpec, load: Workload, seed: int = 0) -> None:
    """Asserts that leaping and stepping agree on everything a user can see."""
    leaping = run_cluster(spec, load, seed)
    stepping = run_cluster(replace(spec, limits=replace(spec.limits, max_run=1)), load, seed)
    assert np.array_equal(leaping.replica, stepping.replica)
    assert np.array_equal(leaping.preemptions, stepping.preemptions)
    assert np.array_equal(leaping.cached_tokens, stepping.cached_tokens)
    for i in np.flatnonzero(leaping.completed):
        np.testing.assert_allclose(
            leaping.token_times_s(int(i)), stepping.token_times_s(int(i)), rtol=0, atol=1e-9
        )
    fast, slow = summarize(leaping), summarize(stepping)
    # KV use is sampled at the ends of runs, which leaping has fewer of.
    for name in fast.keys() - {"kv_usage_mean"}:
        assert fast[name] == pytest.approx(slow[name], rel=1e-6, abs=1e-6, nan_ok=True), name


@settings(max_examples=150, deadline=None)
@given(
    load=workloads(),
    timer=st.sampled_from(TIMERS),
    num_blocks=st.sampled_from([34, 40, 64, 400]),
    max_num_seqs=st.integers(1, 8),
    budget=st.sampled_from([16, 64, 257, 2048]),
    caching=st.booleans(),
    replicas=st.integers(1, 3),
    router=st.sampled_from(["round_robin", "random", "least_outstanding"]),
    frontend_s=st.sampled_from([0.0, 0.0021]),
    frontend=st.sampled_from(FRONTENDS),
    policy=st.sampled_from(["fcfs", "priority"]),
    threshold=st.sampled_from([0, 0, 12, 100]),
    watermark=st.sampled_from([0.0, 0.1]),
    is_async=st.booleans(),
)
def test_leap_equals_step(
    load: Workload,
    timer: AffineTimer,
    num_blocks: int,
    max_num_seqs: int,
    budget: int,
    caching: bool,
    replicas: int,
    router: str,
    frontend_s: float,
    frontend: Frontend,
    policy: Literal["fcfs", "priority"],
    threshold: int,
    watermark: float,
    is_async: bool,
) -> None:
    limits = EngineLimits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        scheduling_policy=policy,
        long_prefill_token_threshold=threshold,
        watermark=watermark,
        async_scheduling=is_async,
    )
    # In a closed loop, replicas in lockstep feed each other: at the same instant, up to rounding,
    # which decides whether a request is still in time for the next step.
    spec = ClusterSpec(
        timer=timer,
        limits=limits,
        num_blocks=num_blocks,
        max_model_len=10_000,
        replicas=replicas if load.max_concurrency is None else 1,
        routing=RouterOptions(router=router),
        frontend_s=frontend_s,
        frontend=frontend,
    )
    both(spec, load, seed=7)


@settings(max_examples=40, deadline=None)
@given(load=workloads(longest=200), max_num_seqs=st.integers(1, 8))
def test_leap_equals_step_without_chunked_prefill(load: Workload, max_num_seqs: int) -> None:
    limits = EngineLimits(
        max_num_seqs=max_num_seqs, max_num_batched_tokens=208, enable_chunked_prefill=False
    )
    both(ClusterSpec(timer=TIMERS[0], limits=limits, num_blocks=40, max_model_len=10_000), load)


def test_an_arrival_inside_a_leap_enters_at_the_step_boundary_in_progress() -> None:
    # Steps of 10 ms: 5 ms base + 5 ms for the only sequence. The second request arrives at 45 ms,
    # in the step that ends at 50 ms, and is prefilled in the next one.
    timer = AffineTimer(
        base_s=0.005, per_token_s=0.0, per_pair_s=0.0, per_sequence_s=0.005, per_context_s=0.0
    )
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=512)
    spec = ClusterSpec(timer=timer, limits=limits, num_blocks=64, max_model_len=1000)
    result = run_cluster(spec, workload([0.0, 0.045], [10, 10], [20, 3]))
    # Request 0: prefill ends at 5 ms, decodes at 15, 25, 35, 45, 55.
    np.testing.assert_allclose(
        result.token_times_s(0)[:6], [0.005, 0.015, 0.025, 0.035, 0.045, 0.055], atol=1e-12
    )
    assert result.scheduled_s[1] == pytest.approx(0.045)
    np.testing.assert_allclose(result.token_times_s(1), [0.055, 0.070, 0.085], atol=1e-12)


def test_leaps_spare_events() -> None:
    spec = ClusterSpec(
        timer=AffineTimer(),
        limits=EngineLimits(max_num_seqs=8, max_num_batched_tokens=512),
        num_blocks=1000,
        max_model_len=10_000,
    )
    log = run_cluster(spec, workload([0.0], [100], [1000])).replicas[0]
    assert len(log.steps) == 1000
    assert len(log.steps.counts) == 2, "one prefill step, one run of 999 decodes"


def test_a_long_prompt_is_computed_in_one_run_up_to_its_last_chunk() -> None:
    timer = AffineTimer()
    limits = EngineLimits(max_num_seqs=8, max_num_batched_tokens=100)
    engine = Engine(timer, limits, num_blocks=1000)
    engine.waiting.append(Sequence(0, 1050, 5, []))
    # One that arrives later waits for what the first leaves of a budget.
    engine.waiting.append(Sequence(1, 10, 5, []))
    end_s = engine.begin(0.0)
    steps = [timer.step_s(100, 0, timer.prefill_attention_s(100, 100 * i), 0, 0) for i in range(10)]
    assert end_s == pytest.approx(sum(steps))
    engine.end()
    assert [seq.computed for seq in engine.running] == [1000]
    assert engine.kv.used_blocks == 63, "1,000 tokens in blocks of 16"
    np.testing.assert_allclose(engine.log.steps().durations_s, steps)
    engine.begin(end_s)
    assert [(seq.index, tokens) for seq, tokens in engine.batch()] == [(0, 50), (1, 10)]
