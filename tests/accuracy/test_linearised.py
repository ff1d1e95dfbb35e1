"""Robust, bounded, prior-bound least squares on straight lines."""

from __future__ import annotations

import numpy as np
import pytest

from dynosim.accuracy.linearised import Linearised, Prior, minimise, robust_cost

WIDE = Prior(np.zeros(1), np.array([1e3]), np.array([-9.0]), np.array([9.0]))


def line(errors: list[float], slope: float = 1.0) -> Linearised:
    rows = np.array(errors)
    return Linearised(np.zeros(1), rows, np.full((len(rows), 1), slope), np.ones(len(rows)))


def test_one_error_is_removed() -> None:
    assert minimise(line([-0.5]), WIDE, 5.0)[0] == pytest.approx(0.5, abs=1e-4)


def test_an_outlier_does_not_decide() -> None:
    found = minimise(line([-0.1] * 9 + [-50.0]), WIDE, 60.0)[0]
    # The mean would be 5.1.
    assert 0.1 < found < 0.3


def test_a_prior_weighs_as_much_as_one_row_of_its_error() -> None:
    prior = Prior(np.zeros(1), np.array([0.1]), np.array([-9.0]), np.array([9.0]))
    # (x - 0.1)^2 / 2 + (x / 0.1)^2 / 2 is least at 0.1 / 101.
    assert minimise(line([-0.1]), prior, 5.0)[0] == pytest.approx(0.1 / 101, rel=0.02)


def test_bounds_and_radius_hold() -> None:
    prior = Prior(np.zeros(1), np.array([1e3]), np.array([-9.0]), np.array([0.3]))
    assert minimise(line([-4.0]), prior, 5.0)[0] == pytest.approx(0.3, abs=1e-6)
    assert minimise(line([-4.0]), WIDE, 0.2)[0] == pytest.approx(0.2, abs=1e-6)


def test_rows_left_out_do_not_count() -> None:
    both = line([-0.2, 0.4])
    assert minimise(both.only(np.array([1.0, 0.0])), WIDE, 5.0)[0] == pytest.approx(0.2, abs=1e-4)


def test_the_cost_is_half_a_square_near_zero_and_a_distance_far_out() -> None:
    ones = np.ones(1)
    assert robust_cost(np.array([0.01]), ones) == pytest.approx(0.5e-4, rel=1e-3)
    assert robust_cost(np.array([1e4]), ones) == pytest.approx(1e4, rel=1e-3)
