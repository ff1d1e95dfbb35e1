"""The largest rate that meets its limits, on queues whose answer is known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.accuracy.max_rate import RATIO, largest_rate


@given(st.floats(0.1, 1000), st.floats(0.01, 10_000))
def test_finds_the_rate_of_a_queue_from_any_guess_nearby(capacity: float, guess: float) -> None:
    guess = min(max(guess, capacity / 500), capacity * 500)
    runs = 0

    def run(rate: float) -> dict[str, float]:
        nonlocal runs
        runs += 1
        return {"p99_ttft_ms": 1 / (1 - rate / capacity) if rate < capacity else math.inf}

    # 1 / (1 - load) = 10 at a load of 0.9.
    found = largest_rate(run, {"p99_ttft_ms": 10.0}, guess)
    assert 0.9 * capacity / RATIO <= found * (1 + 1e-9)
    assert found <= 0.9 * capacity * (1 + 1e-9)
    assert runs <= 20


def test_the_tighter_limit_decides() -> None:
    def run(rate: float) -> dict[str, float]:
        return {"p99_ttft_ms": rate, "p99_tpot_ms": 2 * rate}

    limits_ms = {"p99_ttft_ms": 100.0, "p99_tpot_ms": 100.0}
    assert largest_rate(run, limits_ms, 10.0) == pytest.approx(50.0, rel=RATIO - 1)


def test_limits_that_no_rate_meets_or_exceeds() -> None:
    assert math.isnan(largest_rate(lambda rate: {"x": 2.0}, {"x": 1.0}, 1.0))
    assert math.isinf(largest_rate(lambda rate: {"x": 0.5}, {"x": 1.0}, 1.0))
