"""An engine reduced to a queue behaves as queueing theory says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from affine_timer import AffineTimer
from batch_means import assert_mean
from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.metrics import summarize
from dynosim.sim.random_streams import stream
from dynosim.sim.results import RunResult
from workloads import workload

# One request at a time, one token each: a server whose service time is base + per_token * prompt.
ONE_AT_A_TIME = EngineLimits(max_num_seqs=1, max_num_batched_tokens=1 << 20)


RANDOM = RouterOptions(router="random")
CENTRAL_QUEUE = RouterOptions(router="least_outstanding", router_max_outstanding=1)


def served(
    service_s: FloatArray, utilisation: float, replicas: int = 1, routing: RouterOptions = RANDOM
) -> RunResult:
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
        routing=routing,
    )
    return run_cluster(spec, workload(arrival_s.tolist(), prompts.tolist(), [1] * n))


def waits_s(
    service_s: FloatArray, utilisation: float, replicas: int = 1, routing: RouterOptions = RANDOM
) -> FloatArray:
    result = served(service_s, utilisation, replicas, routing)
    return result.scheduled_s - result.sent_s


@pytest.mark.parametrize("utilisation", [0.3, 0.7, 0.8])
def test_m_d_1(utilisation: float) -> None:
    # Pollaczek-Khinchine with no variance: W = rho s / (2 (1 - rho)).
    expected_s = utilisation * 0.01 / (2 * (1 - utilisation))
    assert_mean(waits_s(np.full(60_000, 0.01), utilisation), expected_s, within=0.12)


@pytest.mark.parametrize("utilisation", [0.3, 0.7, 0.8])
def test_m_m_1(utilisation: float) -> None:
    # W = rho s / (1 - rho); who waits, waits exponentially with mean s / (1 - rho).
    service_s = stream(4, "service").exponential(0.01, 80_000)
    wait_s = waits_s(service_s, utilisation)
    assert_mean(wait_s, utilisation * 0.01 / (1 - utilisation), within=0.2)
    assert_mean((wait_s > 1e-12).astype(float), utilisation, within=0.05)
    longer_s = 0.01 / (1 - utilisation)
    assert_mean((wait_s > longer_s).astype(float), utilisation * math.exp(-1), within=0.15)


def test_m_g_1_of_answers_that_vary_more_than_exponentially() -> None:
    # Pollaczek-Khinchine: W = rho s (1 + cv^2) / (2 (1 - rho)); a gamma of cv^2 = 2.
    service_s = stream(4, "service").gamma(0.5, 0.02, 80_000)
    assert_mean(waits_s(service_s, 0.6), 0.6 * 0.01 * 3 / (2 * 0.4), within=0.15)


def test_random_routing_splits_a_poisson_stream_into_independent_m_d_1_queues() -> None:
    wait_s = waits_s(np.full(60_000, 0.01), 0.7, replicas=3)
    assert_mean(wait_s, 0.7 * 0.01 / (2 * 0.3), within=0.08)


def erlang_c(servers: int, load: float) -> float:
    """Returns the probability of waiting in M/M/c, ``load`` being the mean of busy servers."""
    term = total = 1.0
    for busy in range(1, servers):
        term *= load / busy
        total += term
    last = term * load / servers / (1 - load / servers)
    return last / (total + last)


@pytest.mark.parametrize(("servers", "utilisation"), [(2, 0.7), (4, 0.8), (8, 0.85)])
def test_one_queue_before_many_replicas_is_m_m_c(servers: int, utilisation: float) -> None:
    # Wq = C(c, a) s / (c (1 - rho)).
    service_s = stream(4, "service").exponential(0.01, 60_000)
    result = served(service_s, utilisation, servers, CENTRAL_QUEUE)
    wait_s = result.routed_s - result.arrived_s
    waits = erlang_c(servers, utilisation * servers)
    assert_mean(wait_s, waits * 0.01 / (servers * (1 - utilisation)), within=0.25)
    assert_mean((wait_s > 0.0).astype(float), waits, within=0.08)
    # Nobody waits at a replica, which has one request at most.
    np.testing.assert_allclose(result.scheduled_s, result.routed_s, rtol=0, atol=1e-9)


def test_a_queue_at_each_replica_is_worse_than_one_before_all() -> None:
    service_s = stream(4, "service").exponential(0.01, 20_000)
    shortest = RouterOptions(router="least_outstanding")
    means_s = [
        float(waits_s(service_s, 0.8, 4, routing).mean())
        for routing in (CENTRAL_QUEUE, shortest, RANDOM)
    ]
    assert means_s == sorted(means_s)
    assert means_s[2] > 2 * means_s[1]


def test_two_choices_reach_mitzenmachers_fixed_point() -> None:
    # T = s sum over i >= 1 of rho^(2^i - 2), in the limit of many replicas (Mitzenmacher 2001).
    service_s = stream(4, "service").exponential(0.01, 60_000)
    result = served(service_s, 0.9, 100, RouterOptions(router="power_of_two"))
    fixed_point = sum(0.9 ** (2**i - 2) for i in range(1, 12))
    # A hundred replicas are a little worse than the limit.
    time_s = (result.finish_s - result.sent_s)[10_000:]
    assert time_s.mean() / 0.01 == pytest.approx(fixed_point, rel=0.05)


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
