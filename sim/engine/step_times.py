"""Steps of an engine, or their delivery, as runs of alike steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from dynosim.hardware_models.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class StepTimes:
    """When steps ended and how many tokens each gave, one array element a run.

    The ``j``-th step (from 0) of a run lasts ``dt_s + j * growth_s``; in each of its steps
    ``num_decode`` requests get a token that is not their first, and ``num_first`` the first one of
    a stint. Where ``is_pause``, the run is one step that ``num_decode`` requests sit out, and they
    get their token with the next run that is none.
    """

    is_pause: BoolArray
    start_s: FloatArray
    dt_s: FloatArray
    growth_s: FloatArray
    counts: FloatArray
    num_decode: IntArray
    num_first: IntArray

    @staticmethod
    def joined(parts: Sequence[StepTimes]) -> StepTimes:
        """Returns the runs of one part after the other."""
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(StepTimes)}
        return StepTimes(**{name: np.concatenate(column) for name, column in columns.items()})

    def part(self, runs: slice) -> StepTimes:
        """Returns some of the runs; views, not copies."""
        return StepTimes(**{f.name: getattr(self, f.name)[runs] for f in fields(StepTimes)})

    def __len__(self) -> int:
        return int(self.counts.sum())

    @property
    def outputs(self) -> IntArray:
        """How many answers go on in every step of a run."""
        return np.asarray(np.where(self.is_pause, 0, self.num_decode) + self.num_first)

    @property
    def durations_s(self) -> FloatArray:
        """The duration of every run; their sum is the time that the engine was busy."""
        return self._elapsed_s(slice(None), self.counts)

    def ends_s(self, step: IntArray) -> FloatArray:
        """Returns the end times of the given steps, numbered from 0 over all runs."""
        last = np.cumsum(self.counts)
        run = np.searchsorted(last, step, side="right")
        ordinal = step - (last[run] - self.counts[run]) + 1
        return np.asarray(self.start_s[run] + self._elapsed_s(run, ordinal))

    def num_tokens(self, first: IntArray, end: IntArray) -> IntArray:
        """Returns how many tokens stints over the steps [first, end) have."""
        pauses = self._pauses
        return np.asarray(
            end - first - np.searchsorted(pauses, end) + np.searchsorted(pauses, first + 1)
        )

    def token_steps(self, first: int, end: int) -> IntArray:
        """Returns the steps at whose ends a stint over [first, end) has its tokens."""
        steps = np.arange(first, end)
        return np.asarray(steps[(steps == first) | ~np.isin(steps, self._pauses)])

    @property
    def _pauses(self) -> IntArray:
        """The numbers of the steps that are pauses, ascending."""
        return np.asarray(np.cumsum(self.counts)[self.is_pause] - 1, dtype=np.int64)

    def _elapsed_s(self, run: IntArray | slice, steps: FloatArray) -> FloatArray:
        growth_s = 0.5 * steps * (steps - 1) * self.growth_s[run]
        return np.asarray(steps * self.dt_s[run] + growth_s)
