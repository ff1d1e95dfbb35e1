"""Stretches of time as (start, end) columns: disjoint, in order, in seconds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynosim.hardware_models.arrays import FloatArray


class Intervals(NamedTuple):
    """Disjoint stretches in order of time; one may begin where the one before it ends."""

    start_s: FloatArray
    end_s: FloatArray

    @property
    def total_s(self) -> float:
        """The summed length."""
        return float((self.end_s - self.start_s).sum())

    def before(self, times_s: FloatArray) -> FloatArray:
        """Returns how many seconds of the intervals lie before each of ``times_s``."""
        if not len(self.start_s):
            return np.zeros(len(times_s))
        sums_s = np.concatenate([[0.0], np.cumsum(self.end_s - self.start_s)])
        begun = np.searchsorted(self.start_s, times_s, side="right")
        last = np.maximum(begun - 1, 0)
        inside_s = np.clip(times_s - self.start_s[last], 0.0, (self.end_s - self.start_s)[last])
        return np.asarray(np.where(begun > 0, sums_s[last] + inside_s, 0.0))

    def within(self, others: Intervals) -> FloatArray:
        """Returns how many seconds of these lie within each of ``others``."""
        return np.asarray(self.before(others.end_s) - self.before(others.start_s))

    def gaps(self, start_s: float, end_s: float) -> Intervals:
        """Returns what of [start, end] the intervals leave out."""
        starts = np.concatenate([[start_s], self.end_s])
        ends = np.concatenate([self.start_s, [end_s]])
        kept = ends > starts
        return Intervals(starts[kept], ends[kept])


def union(start_s: FloatArray, end_s: FloatArray) -> Intervals:
    """Returns the times that at least one of the stretches, in any order, covers."""
    kept = end_s > start_s
    order = np.argsort(start_s[kept], kind="stable")
    starts, ends = start_s[kept][order], end_s[kept][order]
    if not len(starts):
        return Intervals(starts, ends)
    reach = np.maximum.accumulate(ends)
    first = np.concatenate([[True], starts[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(starts[first], reach[last])
