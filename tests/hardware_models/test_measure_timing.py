"""When seconds are known well enough."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.hardware_models.measure.timing import (
    Rules,
    median,
    quantile,
    settle,
    spread,
    summarised,
)
from fake_bench import Clock


def test_statistics_of_samples_by_hand() -> None:
    timing = summarised([1.0, 1.0, 2.0, 1.0, 4.0])
    assert timing.median_s == 1.0
    assert timing.samples == 5
    assert timing.outliers == pytest.approx(2 / 5)
    assert timing.p90_s == pytest.approx(2 + 0.6 * 2)
    assert timing.drift == pytest.approx((1.0 + 4.0) / 2 / 1.0 - 1.0)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_numpys(seconds: list[float], share: float) -> None:
    assert quantile(seconds, share) == pytest.approx(np.quantile(seconds, share))
    assert median(seconds) == pytest.approx(np.median(seconds))


def test_the_confidence_interval_of_a_median_holds_what_it_says() -> None:
    """Of many draws from one distribution, 95 % of the intervals hold its median (0 here)."""
    random = np.random.default_rng(1)
    draws = 1.0 + 0.1 * random.normal(size=(2000, 25))
    inside = [abs(median(d) - 1.0) <= 2 * spread(d) * median(d) for d in draws.tolist()]
    assert np.mean(inside) > 0.93
    assert spread([1.0] * 9) == 0.0


def test_a_steady_shape_takes_the_least_samples_after_the_warm_up() -> None:
    clock = Clock()
    taken: list[float] = []

    def sample() -> float:
        taken.append(clock())
        clock.now_s += 0.001
        return 0.001

    timing = settle(sample, Rules(warm_up=3, least=5), clock)
    assert (timing.samples, len(taken)) == (5, 8)
    assert timing.median_s == 0.001


def test_an_unsteady_shape_is_sampled_until_the_cap() -> None:
    clock, turn = Clock(), iter(range(10**6))

    def sample() -> float:
        clock.now_s += 0.010
        return 0.001 * (1 + next(turn) % 2)

    timing = settle(sample, Rules(warm_up=0, least=5, most=10**6, cap_s=0.2), clock)
    assert timing.samples == 20
    assert settle(sample, Rules(warm_up=0, most=7, cap_s=9.0), clock).samples == 7


def test_the_least_samples_are_taken_whatever_they_take() -> None:
    clock = Clock()

    def sample() -> float:
        clock.now_s += 60.0
        return 60.0

    assert settle(sample, Rules(warm_up=0, least=3), clock).samples == 3


def test_samples_that_get_faster_were_warm_up_and_are_taken_again() -> None:
    slow = iter([9.0, 9.0, 9.0, 9.0])

    def sample() -> float:
        return next(slow, 1.0)

    assert settle(sample, Rules(warm_up=0, least=9, most=9), Clock()).median_s == 1.0
