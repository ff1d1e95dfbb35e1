"""An engine reduced to a queue behaves as queueing theory says."""

from __future__ import annotations

import numpy as np
import pytest

from affine_timer import AffineTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.metrics import summarize
from dynosim.sim.random_streams import stream
from workloads import workload

# One request at a time, one token each: a server whose service time is base + per_token * prompt.
ONE_AT_A_TIME = EngineLimits(max_num_seqs=1, max_num_batched_tokens=1 << 20)


def mean_wait_s(service_s: np.ndarray, utilisation: float, replicas: int = 1) -> float:
    n = len(service_s)
    rate = utilisation * replicas / service_s.mean()
    arrival_s = np.cumsum(stream(3, "arrivals").exponential(1 / rate, n))
    prompts = np.maximum(1, np.round(service_s / 1e-6)).astype(int)
    timer = AffineTimer(0.0, 1e-6, 0.0, 0.0, 0.0)
    spec = ClusterSpec(
        timer=timer,
        limits=ONE_AT_A_TIME,
        num_blocks=1 << 20,
        max_model_len=1 << 30,
        replicas=replicas,
        routing=RouterOptions(router="random"),
    )
    result = run_cluster(spec, workload(arrival_s.tolist(), prompts.tolist(), [1] * n))
    return float((result.scheduled_s - result.sent_s).mean())


def test_m_d_1() -> None:
    # Pollaczek-Khinchine with no variance: W = rho s / (2 (1 - rho)).
    wait_s = mean_wait_s(np.full(40_000, 0.01), 0.7)
    assert wait_s == pytest.approx(0.7 * 0.01 / (2 * 0.3), rel=0.05)


def test_m_m_1() -> None:
    # W = rho s / (1 - rho).
    service_s = stream(4, "service").exponential(0.01, 60_000)
    wait_s = mean_wait_s(service_s, 0.7)
    assert wait_s == pytest.approx(0.7 * 0.01 / 0.3, rel=0.08)


def test_random_routing_splits_a_poisson_stream_into_independent_m_d_1_queues() -> None:
    wait_s = mean_wait_s(np.full(60_000, 0.01), 0.7, replicas=3)
    assert wait_s == pytest.approx(0.7 * 0.01 / (2 * 0.3), rel=0.05)


def test_littles_law() -> None:
    # N = lambda * W, over a run long enough that its ends do not matter.
    n = 5_000
    arrival_s = np.cumsum(stream(5, "arrivals").exponential(0.02, n))
    spec = ClusterSpec(
        timer=AffineTimer(),
        limits=EngineLimits(max_num_seqs=64, max_num_batched_tokens=2048),
        num_blocks=10_000,
        max_model_len=10_000,
    )
    result = run_cluster(spec, workload(arrival_s.tolist(), [200] * n, [40] * n))
    m = summarize(result)
    times = np.linspace(arrival_s[n // 10], arrival_s[-n // 10], 20_000)
    in_flight = (
        np.searchsorted(np.sort(result.sent_s), times)
        - np.searchsorted(np.sort(result.finish_s), times)
    ).mean()
    assert in_flight == pytest.approx(m["request_throughput"] * m["mean_e2el_ms"] / 1e3, rel=0.05)
