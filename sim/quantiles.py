"""Exact statistics of step durations that occur many times, without listing them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dynosim.hardware_models.arrays import FloatArray


def quantiles(values: FloatArray, shares: Sequence[float]) -> FloatArray:
    """Returns ``np.quantile(values, shares)``, the same to the last bit; there must be values.

    That function and ``np.median`` load ``numpy.ma``, which takes as long as all
    other statistics of a run.
    """
    position = np.asarray(shares) * (len(values) - 1)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, len(values) - 1)
    ordered = np.partition(values, sorted({*below.tolist(), *above.tolist()}))
    low, high, share = ordered[below], ordered[above], position - below
    gap = high - low
    return np.asarray(np.where(share < 0.5, low + gap * share, high - gap * (1.0 - share)))


def median(values: FloatArray) -> float:
    """Returns ``np.median(values)``; there must be values."""
    low, high = (len(values) - 1) // 2, len(values) // 2
    ordered = np.partition(values, [low, high])
    return float(ordered[low] + ordered[high]) / 2.0


class Progressions:
    """A multiset of values: ``weight`` copies of each of ``dt + j * growth`` for ``j < count``.

    All four are arrays of one shape with ``growth >= 0``; that is how step durations come out of a
    leap. Statistics equal numpy's on the listed values (to rounding) at a cost that does not
    depend on how many there are.
    """

    def __init__(
        self, dt: FloatArray, growth: FloatArray, count: FloatArray, weight: FloatArray
    ) -> None:
        present = (weight > 0) & (count > 0)
        self._dt, self._growth = dt[present], growth[present]
        self._count, self._weight = count[present], weight[present]
        self.total = float(self._count @ self._weight)
        self._last_value = self._dt + (self._count - 1) * self._growth

    @classmethod
    def of(cls, values: FloatArray) -> Progressions:
        """Returns values that are listed one by one."""
        ones = np.ones(len(values))
        return cls(values, np.zeros(len(values)), ones, ones)

    @cached_property
    def _first(self) -> _Ranked:
        return _Ranked(self._dt, self._count * self._weight)

    @cached_property
    def _last(self) -> _Ranked:
        return _Ranked(self._last_value, self._count * self._weight)

    def mean_std(self) -> tuple[float, float]:
        """Returns mean and population standard deviation; NaN when empty."""
        if not self.total:
            return math.nan, math.nan
        k, g = self._count, self._growth
        j1, j2 = k * (k - 1) / 2, (k - 1) * k * (2 * k - 1) / 6
        mean = float(self._weight @ (k * self._dt + g * j1)) / self.total
        offset = self._dt - mean
        squares = k * offset**2 + 2 * offset * g * j1 + g**2 * j2
        return mean, math.sqrt(max(float(self._weight @ squares) / self.total, 0.0))

    def quantile(self, q: float) -> float:
        """Returns ``np.quantile`` of the listed values (linear interpolation); NaN when empty."""
        if not self.total:
            return math.nan
        position = q * (self.total - 1)
        below = self._at_rank(math.floor(position))
        share = position - math.floor(position)
        if not share:
            return below
        return below + (self._at_rank(math.ceil(position)) - below) * share

    def _at_rank(self, rank: int) -> float:
        """Returns the value of the given rank (from 0).

        Counting each progression as all its smallest, then all its largest member, brackets the
        value; bisection among the few progressions that reach into the bracket finds it.
        """
        low, high = self._first.value_at(rank), self._last.value_at(rank)
        wholly_below = self._last_value < low
        needed = rank + 1.0 - float(self._count[wholly_below] @ self._weight[wholly_below])
        inside = ~wholly_below & (self._dt <= high)
        dt, growth = self._dt[inside], self._growth[inside]
        count, weight = self._count[inside], self._weight[inside]
        while high - low > 1e-13 * high:
            middle = 0.5 * (low + high)
            if float(_counts_up_to(middle, dt, growth, count) @ weight) >= needed:
                high = middle
            else:
                low = middle
        return high


class _Ranked:
    """Values with multiplicities, sorted, to be looked up by rank."""

    def __init__(self, values: FloatArray, copies: FloatArray) -> None:
        order = np.argsort(values)
        self._values = values[order]
        self._end = np.cumsum(copies[order])

    def value_at(self, rank: int) -> float:
        """Returns the value of the given rank, from 0."""
        return float(self._values[np.searchsorted(self._end, rank, side="right")])


def _counts_up_to(
    value: float, dt: FloatArray, growth: FloatArray, count: FloatArray
) -> FloatArray:
    """Returns how many members of each progression are at most ``value``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.floor((value - dt) / growth) + 1.0
    steps = np.where(growth > 0.0, steps, np.where(dt <= value, count, 0.0))
    return np.asarray(np.clip(steps, 0.0, count))
