"""Metrics against numpy on listed values, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.metrics import summarize
from dynosim.sim.quantiles import Progressions, median, quantiles
from dynosim.sim.results import RunResult
from workloads import workload

RUNS = st.lists(
    st.tuples(
        st.floats(0.001, 2.0), st.sampled_from([0.0, 1e-6, 0.01]), st.integers(1, 40),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


def listed(runs: list[tuple[float, float, int, int]]) -> list[float]:
    return [
        dt + j * g for dt, g, count, weight in runs for j in range(count) for _ in range(weight)
    ]


@given(
    values=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50),
    shares=st.lists(st.sampled_from([0.0, 0.3, 0.5, 0.9, 0.95, 0.99, 1.0]), min_size=1),
)
def test_quantiles_are_those_of_numpy(values: list[float], shares: list[float]) -> None:
    found = quantiles(np.array(values), shares)
    assert found.tolist() == np.quantile(values, shares).tolist()
    assert median(np.array(values)) == np.median(values)


@given(runs=RUNS, q=st.sampled_from([0.0, 0.3, 0.5, 0.9, 0.99, 1.0]))
def test_statistics_of_progressions_equal_those_of_the_listed_values(
    runs: list[tuple[float, float, int, int]], q: float
) -> None:
    values = listed(runs)
    gaps = Progressions(*np.asarray(runs, dtype=np.float64).T)
    assert gaps.total == len(values)
    if not values:
        assert np.isnan(gaps.quantile(q))
        return
    assert gaps.quantile(q) == pytest.approx(float(np.quantile(values, q)), rel=1e-11)
    mean, std = gaps.mean_std()
    assert mean == pytest.approx(np.mean(values))
    assert std == pytest.approx(np.std(values), abs=1e-8)


def run(num_blocks: int = 100) -> RunResult:
    timer = AffineTimer(
        base_s=0.010, per_token_s=0.0, per_pair_s=0.0, per_sequence_s=0.0, per_context_s=0.0
    )
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=100, block_size=10)
    spec = ClusterSpec(timer=timer, limits=limits, num_blocks=num_blocks, max_model_len=1000)
    return run_cluster(spec, workload([0.0, 0.5], [20, 30], [5, 1]))


def test_a_run_by_hand() -> None:
    # Request 0: first token at 10 ms, then 4 gaps of 10 ms. Request 1: one token at 510 ms.
    m = summarize(run(), {"ttft": 10.5, "e2el": 45.0})
    assert m["completed"] == 2
    assert m["duration"] == pytest.approx(0.51)
    assert m["mean_ttft_ms"] == pytest.approx(10.0)
    assert m["median_tpot_ms"] == m["mean_tpot_ms"] == pytest.approx(10.0)
    assert m["p99_itl_ms"] == pytest.approx(10.0)
    assert m["p99_e2el_ms"] == pytest.approx(50 - 0.01 * 40)
    assert m["output_throughput"] == pytest.approx(6 / 0.51)
    assert m["total_token_throughput"] == pytest.approx(56 / 0.51)
    assert m["output_tok_s_per_user"] == pytest.approx(100.0)
    assert m["max_concurrent_requests"] == 1
    # Only request 1 meets an E2EL of 45 ms.
    assert m["request_goodput"] == pytest.approx(1 / 0.51)
    assert m["slo_attainment"] == pytest.approx(0.5)
    assert m["busy_share"] == pytest.approx(0.06 / 0.51)
    assert m["kv_usage_peak"] == pytest.approx(0.03)


def test_without_slos_goodput_is_not_a_number_rather_than_a_guess() -> None:
    assert np.isnan(summarize(run())["request_goodput"])


def test_pooled_gaps_are_every_request_s_own_gaps() -> None:
    timer = AffineTimer(base_s=0.01)
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=64, block_size=10)
    spec = ClusterSpec(timer=timer, limits=limits, num_blocks=22, max_model_len=1000)
    load = workload([0.0, 0.01, 0.02, 0.03], [60, 50, 40, 70], [30, 40, 50, 20])
    result = run_cluster(spec, load)
    assert result.preemptions.sum() > 0, "the case must contain a resumption"
    gaps_ms = np.concatenate([np.diff(result.token_times_s(i)) for i in range(4)]) * 1e3
    m = summarize(result)
    assert m["mean_itl_ms"] == pytest.approx(gaps_ms.mean())
    for p in (50, 90, 95, 99):
        assert m[f"p{p}_itl_ms"] == pytest.approx(np.percentile(gaps_ms, p))


def test_goodput_on_gaps_between_tokens_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="itl"):
        summarize(run(), {"itl": 50.0})


def test_time_before_the_engine_is_neither_queue_nor_prefill() -> None:
    timer = AffineTimer(0.010, 0.0, 0.0, 0.0, 0.0)
    limits = EngineLimits(max_num_seqs=1, max_num_batched_tokens=100)
    spec = ClusterSpec(
        timer=timer, limits=limits, num_blocks=100, max_model_len=1000, frontend_s=0.004
    )
    # The second request waits for the first: 10 ms of prefill.
    m = summarize(run_cluster(spec, workload([0.0, 0.0], [20, 20], [1, 1])))
    assert m["mean_frontend_ms"] == pytest.approx(4.0)
    assert m["mean_queue_ms"] == pytest.approx(5.0)
    assert m["mean_prefill_ms"] == pytest.approx(10.0)
    assert m["mean_ttft_ms"] == pytest.approx(19.0)
