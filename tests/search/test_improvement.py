"""Picks of the candidates that would add most to the frontier."""

from __future__ import annotations

import moocore
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dynosim.search.improvement import _gains, most_promising

UNIT = st.floats(0.0, 1.0, width=32)


def test_the_best_pick_is_the_one_with_the_largest_new_rectangle() -> None:
    front = np.array([[1.0, 3.0], [3.0, 1.0]])
    points = np.array([[2.0, 2.0], [2.9, 0.9], [1.0, 3.0], [0.5, 3.5]])
    # Between 1 and 3 in both: 1 × 1. Below the last stair: 0.1 × 0.1 of new width, and so on.
    reference = np.array([4.0, 4.0])
    gains = _gains(points, front, reference)
    assert gains == pytest.approx([1.0, 0.1 * 2.1 + 1.0 * 0.1, 0.0, 0.5 * 0.5])
    assert most_promising(points, front, reference, 1) == [0]


def test_picks_spread_out_because_each_joins_the_front() -> None:
    twins = np.array([[1.0, 1.0], [1.001, 1.001], [0.2, 3.0]])
    assert most_promising(twins, np.zeros((0, 2)), np.array([4.0, 4.0]), 2) == [0, 2]


def test_nothing_is_picked_that_adds_nothing() -> None:
    front = np.array([[1.0, 1.0]])
    assert most_promising(np.array([[1.0, 2.0], [5.0, 0.5]]), front, np.array([4.0, 4.0]), 5) == []


@pytest.mark.parametrize("objectives", [2, 3])
@given(data=st.data())
def test_a_gain_is_the_hypervolume_with_the_point_less_that_without(
    objectives: int, data: st.DataObject
) -> None:
    front = data.draw(arrays(np.float64, (5, objectives), elements=UNIT))
    points = data.draw(arrays(np.float64, (4, objectives), elements=UNIT))
    reference = np.full(objectives, 1.1)
    before = moocore.hypervolume(front, ref=reference)
    expected = [moocore.hypervolume(np.vstack((front, p)), ref=reference) - before for p in points]
    gains = _gains(points, front, reference)
    # With three objectives, points that another point dominates may count as nothing.
    compared = moocore.is_nondominated(points) if objectives > 2 else np.ones(4, dtype=bool)
    assert gains[compared] == pytest.approx(np.array(expected)[compared], abs=1e-9)
