"""Queues with known load: stable below one, diverging above."""

from __future__ import annotations

import numpy as np
import pytest

from dynosim.hardware_models.arrays import FloatArray
from dynosim.search.stability import instability


def single_server(arrival_s: FloatArray, service_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Start and finish times of a first-come-first-served server (Lindley's recursion)."""
    start_s = np.empty_like(arrival_s)
    free_s = 0.0
    for i, (arrival, service) in enumerate(zip(arrival_s, service_s, strict=True)):
        start_s[i] = max(arrival, free_s)
        free_s = start_s[i] + service
    return start_s, start_s + service_s


def run(load: float, n: int = 2000, seed: int = 0) -> float:
    random = np.random.default_rng(seed)
    arrival_s = np.cumsum(random.exponential(1.0, n))
    start_s, finish_s = single_server(arrival_s, random.exponential(load, n))
    return instability(arrival_s, start_s, finish_s)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("load", [0.3, 0.8, 0.9])
def test_a_queue_below_its_capacity_is_stable(load: float, seed: int) -> None:
    assert run(load, seed=seed) < 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("load", [1.3, 2.0, 5.0])
def test_a_queue_above_its_capacity_is_not(load: float, seed: int) -> None:
    assert run(load, seed=seed) > 0


def test_deterministic_queue_by_hand() -> None:
    """One arrival a second, 1.2 s of service: delay grows by 0.2 s a request.

    100 requests: quarter medians at request 12 and 87, delays 2.4 s and 17.4 s, 75 s apart:
    growth 0.2 s/s, four limits. Ratio 17.4/2.4 = 7.25, 3.625 limits. Drain: the last request
    starts at 118.8, 19.8 s after its arrival at 99: 0.2 of the 99 s span, four limits.
    """
    arrival_s = np.arange(100.0)
    start_s, finish_s = single_server(arrival_s, np.full(100, 1.2))
    assert instability(arrival_s, start_s, finish_s) == pytest.approx(3.625 - 1.0)


def test_a_burst_that_drains_before_the_end_is_stable() -> None:
    arrival_s = np.sort(np.concatenate([np.arange(0.0, 400.0), np.full(80, 100.0)]))
    start_s, finish_s = single_server(arrival_s, np.full(480, 0.5))
    assert instability(arrival_s, start_s, finish_s) < 0


def test_a_long_last_answer_is_no_backlog() -> None:
    arrival_s = np.arange(100.0)
    start_s, finish_s = arrival_s.copy(), arrival_s + 0.5
    finish_s[-1] += 1000.0
    assert instability(arrival_s, start_s, finish_s) < 0


def test_a_batch_and_a_handful_of_requests_have_no_rate() -> None:
    batch_s = np.zeros(100)
    start_s, finish_s = single_server(batch_s, np.full(100, 1.0))
    assert instability(batch_s, start_s, finish_s) < 0
    few_s = np.arange(4.0)
    start_s, finish_s = single_server(few_s, np.full(4, 10.0))
    assert instability(few_s, start_s, finish_s) < 0
    assert instability(np.empty(0), np.empty(0), np.empty(0)) < 0
