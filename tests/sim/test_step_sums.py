"""Sums over coming steps, against a dictionary that does the same."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dynosim.sim.engine.step_sums import StepSums, differences
from dynosim.sim.random_streams import draws

moves = st.lists(
    st.tuples(st.integers(0, 900), st.integers(0, 700), st.integers(-3, 9)), max_size=12
)


@given(moves)
def test_sums_are_those_of_a_dictionary(moves: list[tuple[int, int, int]]) -> None:
    sums, expected, now = StepSums(), defaultdict[int, int](int), 0
    for forward, count, value in moves:
        now += forward
        sums.add(now, np.full(count, value))
        for step in range(now, now + count):
            expected[step] += value
        found = sums.coming(now, count).tolist()
        assert found == [expected[step] for step in range(now, now + count)]


def test_differences_are_numpys() -> None:
    values = np.array([4, 4, 7, 9])
    assert differences(values, 3).tolist() == np.diff(values, prepend=3).tolist()
    assert differences(values[:0], 3).tolist() == []


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(1, 50), st.integers(0, 9))
def test_draws_belong_to_their_place(one: int, other: int, count: int, seed: int) -> None:
    found = draws(seed, "test", (one, other), count)
    assert ((found >= 0.0) & (found < 1.0)).all()
    longer = draws(seed, "test", (one, other), count + 7)
    assert np.array_equal(found, longer[:count])
    for elsewhere in ((one + 1, other), (one, other + 1)):
        assert not np.array_equal(longer, draws(seed, "test", elsewhere, count + 7))
    assert not np.array_equal(longer, draws(seed, "another", (one, other), count + 7))
    assert not np.array_equal(longer, draws(seed + 1, "test", (one, other), count + 7))


def test_draws_stay_the_same() -> None:
    """Across versions and machines: a change here changes every published result."""
    found = draws(0, "acceptance", (1, 0), 3)
    expected = [0.4751564120512092, 0.8269627538677118, 0.1609885223011709]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
