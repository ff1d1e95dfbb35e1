"""What simulations teach about the estimate: a Gaussian process over its errors.

Nearby candidates share the estimate's faults (a scheduler's rule, a tail's shape), so the errors
seen so far predict those to come, and how far to trust that. Rasmussen and Williams, Gaussian
Processes for Machine Learning (2006), algorithm 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.search.grid import Grid

LENGTHS = (0.4, 0.8, 1.6)
"""Distances over which errors may be alike; the whole of an ordered axis, or another category,
is 1."""

NOISES = (0.03, 0.1, 0.3)
"""Standard deviations that an error no neighbour shares may have, over that of all errors."""

PRIOR_STD = 0.5
"""Standard deviation of an error before anything is known, in logarithms: a factor of 1.6."""


LEAST_SPREAD = 0.02
"""Errors are taken to spread by 2 % at least, however few agree."""


MOST_KNOWN = 256
"""Errors that a prediction rests on at most: the newest three quarters, and the oldest thinned."""

GROWTH = 1.25
"""How many times more errors make it worth choosing length and noise again."""

CHUNK = 8192
"""Candidates predicted at once: memory does not grow with the space."""

DIGITS = 9
"""Decimals of a prediction, in logarithms."""


class Correction:
    """Predicts the estimate's errors at ``candidates`` (flat indices of ``grid``).

    Errors have one column an objective or constraint; a row is of one simulated candidate.
    """

    def __init__(self, grid: Grid, candidates: Sequence[int] | IntArray, columns: int) -> None:
        self._where = _positions(grid, candidates)
        self._rows: list[int] = []
        self._errors: list[FloatArray] = []
        self._columns = columns
        self._law = (LENGTHS[0], NOISES[0])
        self._chosen_at = 0.0

    def extend(self, grid: Grid, candidates: IntArray) -> None:
        """Adds candidates, whose rows follow those that are there."""
        self._where = np.concatenate((self._where, _positions(grid, candidates)))

    def learn(self, row: int, errors: FloatArray) -> None:
        """Notes the errors of the candidate in ``row``: simulated less estimated, finite."""
        self._rows.append(row)
        self._errors.append(errors)

    def most_favourable(self) -> FloatArray:
        """Returns by column an error that few are below: the lowest seen, less a spread."""
        if not self._rows:
            return np.full(self._columns, -np.inf)
        errors = np.array(self._errors)
        return np.asarray(errors.min(axis=0) - np.maximum(errors.std(axis=0), LEAST_SPREAD))

    def predict(self, rows: IntArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Returns mean and standard deviation of the errors of ``rows`` (None: of all).

        Both have the shape (rows, columns).
        """
        asked = self._where if rows is None else self._where[rows]
        shape = (len(asked), self._columns)
        if not self._rows:
            return np.zeros(shape), np.full(shape, PRIOR_STD)
        kept = _kept(len(self._rows))
        errors = np.array(self._errors)[kept]
        known = self._where[np.array(self._rows)[kept]]
        center = np.median(errors, axis=0)
        spread = np.maximum(errors.std(axis=0), LEAST_SPREAD)
        scaled = (errors - center) / spread
        if len(self._rows) >= self._chosen_at:
            self._law, self._chosen_at = _likeliest(known, scaled), len(self._rows) * GROWTH
        length, noise = self._law
        inverse = np.linalg.inv(_kernel(known, known, length) + noise**2 * np.eye(len(known)))
        weights = inverse @ scaled * spread
        mean, deviation = np.empty(shape), np.empty(shape)
        for begin in range(0, len(asked), CHUNK):
            part = slice(begin, begin + CHUNK)
            across = _kernel(asked[part], known, length)
            mean[part] = center + across @ weights
            left = 1.0 + noise**2 - ((across @ inverse) * across).sum(axis=1)
            deviation[part] = np.sqrt(np.maximum(left, 0.0))[:, None] * spread
        # The last bits differ with threads and alignment of memory; they must not decide a choice.
        return mean.round(DIGITS), deviation.round(DIGITS)


def _kept(count: int) -> IntArray:
    """Returns which of ``count`` errors, oldest first, a prediction rests on."""
    if count <= MOST_KNOWN:
        return np.arange(count)
    newest = MOST_KNOWN * 3 // 4
    oldest = np.linspace(0, count - newest - 1, MOST_KNOWN - newest).round().astype(np.int64)
    return np.concatenate((oldest, np.arange(count - newest, count)))


def _likeliest(known: FloatArray, scaled: FloatArray) -> tuple[float, float]:
    """Returns the length and the noise under which the errors seen are likeliest, ibid. (2.30)."""

    chosen, best = (LENGTHS[0], NOISES[0]), -np.inf
    for length in LENGTHS:
        # One decomposition serves every noise.
        values, vectors = np.linalg.eigh(_kernel(known, known, length))
        squares = ((vectors.T @ scaled) ** 2).sum(axis=1)
        for noise in NOISES:
            variances = np.maximum(values, 0.0) + noise**2
            logs = scaled.shape[1] * np.log(variances).sum()
            likelihood = float(-0.5 * ((squares / variances).sum() + logs))
            if likelihood > best:
                chosen, best = (length, noise), likelihood
    return chosen


def _positions(grid: Grid, candidates: Sequence[int] | IntArray) -> FloatArray:
    """Returns coordinates in which Euclidean distance is how unlike two candidates are.

    An ordered axis is one coordinate from 0 to 1; of another, each value has its own.
    """
    at = grid.coordinates_of(candidates)
    columns = []
    for axis, (length, is_ordered) in enumerate(zip(grid.lengths, grid.is_ordered, strict=True)):
        if length == 1:
            continue
        if is_ordered:
            columns.append(at[:, axis : axis + 1] / (length - 1))
        else:
            columns.append(np.eye(length)[at[:, axis]] / np.sqrt(2.0))
    return np.hstack(columns) if columns else np.zeros((len(candidates), 1))


def _kernel(left: FloatArray, right: FloatArray, length: float) -> FloatArray:
    """Returns the Matérn 3/2 covariance of two sets of positions."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2.0 * left @ right.T
    scaled = np.sqrt(3.0 * np.maximum(squares, 0.0)) / length
    return np.asarray((1.0 + scaled) * np.exp(-scaled))
