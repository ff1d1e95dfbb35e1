"""What simulations teach about the estimate's errors."""

from __future__ import annotations

import numpy as np
import pytest

from dynosim.search.correction import PRIOR_STD, Correction
from dynosim.search.grid import Grid

GRID = Grid(names=("seqs", "backend"), lengths=(9, 2), is_ordered=(True, False))
ALL = range(GRID.size)


def learned(errors: dict[tuple[int, int], float]) -> Correction:
    correction = Correction(GRID, ALL, 1)
    for at, error in errors.items():
        correction.learn(GRID.index(at), np.array([error]))
    return correction


def test_without_experience_every_error_is_zero_give_or_take_the_prior() -> None:
    mean, deviation = Correction(GRID, ALL, 2).predict()
    assert (mean == 0.0).all()
    assert (deviation == PRIOR_STD).all()


def test_errors_that_were_seen_are_predicted_nearly_exactly_and_with_little_doubt() -> None:
    seen = {(0, 0): 0.2, (4, 0): 0.1, (8, 0): -0.1, (4, 1): -0.3}
    mean, deviation = learned(seen).predict()
    rows = [GRID.index(at) for at in seen]
    assert mean[rows, 0] == pytest.approx(list(seen.values()), abs=0.01)
    assert deviation[rows, 0].max() < 0.1 * np.std(list(seen.values()))


def test_doubt_grows_with_the_distance_from_what_was_seen() -> None:
    mean, deviation = learned({(0, 0): 0.3, (0, 1): -0.3, (1, 0): 0.25}).predict()
    along = [deviation[GRID.index((i, 0)), 0] for i in range(1, 9)]
    assert along == sorted(along)
    # An error between two that were seen lies between them.
    assert -0.3 < mean[GRID.index((1, 1)), 0] < 0.3


def test_a_single_lesson_shifts_all_estimates_alike() -> None:
    mean, _ = learned({(3, 1): 0.25}).predict()
    assert mean[:, 0] == pytest.approx(0.25)
