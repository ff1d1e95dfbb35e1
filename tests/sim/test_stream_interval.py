"""Streams that are written every few tokens: what clients see, and what it costs API servers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.deployment import Deployment
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.metrics import summarize, token_gaps_s
from dynosim.sim.simulate import simulate
from dynosim.sim.stream_events import event_tokens
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec
from pools import pools
from workloads import workload, workloads

# Every step takes 10 ms.
STEADY = AffineTimer(0.010, 0.0, 0.0, 0.0, 0.0)


def spec(
    interval: int, scheduler: str = "vllm", num_blocks: int = 400, **frontend: float
) -> ClusterSpec:
    policy = "guaranteed_no_evict" if scheduler == "trtllm" else "fcfs"
    limits = EngineLimits(
        scheduler=scheduler,
        scheduling_policy=policy,
        max_num_seqs=8,
        max_num_batched_tokens=512,
    )
    return ClusterSpec(
        timer=STEADY,
        limits=limits,
        num_blocks=num_blocks,
        max_model_len=100_000,
        frontend=Frontend(stream_interval=interval, **frontend),  # type: ignore[arg-type]
    )


def test_the_first_then_every_few_then_what_is_left() -> None:
    assert event_tokens(1, 4).tolist() == [1]
    assert event_tokens(10, 4).tolist() == [1, 5, 9, 10]
    assert event_tokens(9, 4).tolist() == [1, 5, 9]


def test_a_stream_by_hand() -> None:
    result = run_cluster(spec(4), workload([0.0], [20], [10]))
    times_s = np.array([1, 5, 5, 5, 5, 9, 9, 9, 9, 10]) * 0.010
    np.testing.assert_allclose(result.token_times_s(0), times_s)
    metrics, plain = summarize(result), summarize(run_cluster(spec(1), result.workload))
    # Gaps of 40, 40 and 10 ms, where every token for itself takes 10.
    assert metrics["mean_itl_ms"] == pytest.approx(30.0)
    assert metrics["p99_itl_ms"] == pytest.approx(40.0)
    for name in ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms"):
        assert metrics[name] == pytest.approx(plain[name])


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "trtllm", "static"])
@settings(max_examples=25, deadline=None)
@given(load=workloads(), interval=st.integers(2, 9), num_blocks=st.sampled_from([40, 400]))
def test_gaps_are_those_between_the_writes_of_each_request(
    scheduler: str, load: Workload, interval: int, num_blocks: int
) -> None:
    """Also where sequences are preempted, or sit steps out."""
    cluster = replace(spec(interval, scheduler, num_blocks), timer=AffineTimer())
    result = run_cluster(cluster, load)
    gaps_s = []
    for request in np.flatnonzero(result.completed).tolist():
        times_s = result.token_times_s(request)
        ends = event_tokens(len(times_s), interval)
        gaps_s.append(np.diff(times_s[ends - 1]))
    listed, pooled = np.concatenate(gaps_s), token_gaps_s(result)
    assert pooled.total == len(listed)
    if len(listed):
        assert pooled.mean_std() == pytest.approx((listed.mean(), listed.std()), abs=1e-9)
        assert pooled.quantile(0.9) == pytest.approx(float(np.quantile(listed, 0.9)), abs=1e-9)


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "trtllm"])
def test_a_token_that_came_with_its_kv_is_the_first_of_its_stream(scheduler: str) -> None:
    cluster = replace(pools(scheduler, timer=STEADY), frontend=Frontend(stream_interval=4))
    result = run_cluster(cluster, workload([0.0], [100], [10]))
    times_s = result.token_times_s(0)
    assert len(np.unique(times_s)) == 4
    gaps = token_gaps_s(result)
    assert gaps.total == 3
    assert gaps.mean_std()[0] == pytest.approx(float(np.ptp(times_s)) / 3)


def test_api_servers_that_are_too_slow_for_every_token_are_not_for_every_eighth() -> None:
    load = workload([0.0] * 8, [20] * 8, [200] * 8)
    cost = {"output_s": 0.002, "detokenise_s": 0.0001}
    every, eighth = (summarize(run_cluster(spec(n, **cost), load)) for n in (1, 8))
    # Eight answers a step take 16 ms to write, where the engine needs 10; or 2.7 ms.
    assert every["mean_tpot_ms"] == pytest.approx(16.0, rel=0.01)
    assert eighth["mean_tpot_ms"] == pytest.approx(10.0, rel=0.01)
    assert eighth["mean_ttft_ms"] == pytest.approx(every["mean_ttft_ms"])
    assert Frontend(stream_interval=8, **cost).later_output_s == pytest.approx(0.0003375)


@settings(max_examples=30, deadline=None)
@given(load=workloads(), interval=st.integers(1, 6))
def test_a_closed_loop_writes_as_an_open_one(load: Workload, interval: int) -> None:
    """What is worked out afterwards and what clients wait for is the same."""
    cost = {"output_s": 0.004, "detokenise_s": 0.001}
    opened = replace(load, max_concurrency=None)
    closed = replace(load, max_concurrency=len(load))
    first, other = (run_cluster(spec(interval, **cost), each) for each in (opened, closed))
    np.testing.assert_allclose(first.finish_s, other.finish_s, rtol=0, atol=1e-9)


def test_streams_of_drafts_are_refused() -> None:
    deployment = Deployment(
        model="meta-llama/Llama-3.1-8B",
        gpu="h100",
        stream_interval=4,
        speculative_method="ngram",
        num_speculative_tokens=3,
        speculative_acceptance_rate=0.5,
    )
    with pytest.raises(UserError, match="stream_interval"):
        simulate(deployment, build_workload(WorkloadSpec(num_prompts=1)))
