"""When every step of an engine ended, and which steps gave which request its tokens."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray


class StepLog:
    """Steps as runs, tokens as stints of steps, while the engine runs.

    A request emits one token at the end of every step of its stints: one stint from its first
    token to its last, more if it was preempted between. That is every token's time, at a cost
    that grows with requests and not with tokens.
    """

    __slots__ = ("_runs", "_stints", "num_steps")

    def __init__(self) -> None:
        self.num_steps = 0
        self._runs = array("d")
        self._stints = array("q")

    def run(self, *columns: float) -> None:
        """Adds a run; the columns are the fields of :class:`Steps` in their order."""
        self._runs.extend(columns)
        self.num_steps += int(columns[3])

    def stint(self, request: int, first_step: int, end_step: int) -> None:
        """Adds one token for ``request`` at the end of every step in [first_step, end_step)."""
        self._stints.extend((request, first_step, end_step))

    def steps(self) -> Steps:
        """Returns the runs so far."""
        return Steps(*np.array(self._runs, dtype=np.float64).reshape(-1, 8).T)

    def stints(self) -> IntArray:
        """Returns (request, first_step, end_step) rows, one per stint, in order of their ends."""
        return np.array(self._stints, dtype=np.int64).reshape(-1, 3)


@dataclass(frozen=True)
class Steps:
    """An engine's steps as runs, one array element a run.

    The ``j``-th step (from 0) of a run lasts ``dt_s + j * growth_s``; in each of its steps
    ``num_decode`` requests get a token that is not their first. The last three columns are KV
    blocks held and requests running and waiting at the run's end.
    """

    start_s: FloatArray
    dt_s: FloatArray
    growth_s: FloatArray
    counts: FloatArray
    num_decode: FloatArray
    used_blocks: FloatArray
    running: FloatArray
    waiting: FloatArray

    def __len__(self) -> int:
        return int(self.counts.sum())

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

    def _elapsed_s(self, run: IntArray | slice, steps: FloatArray) -> FloatArray:
        growth_s = 0.5 * steps * (steps - 1) * self.growth_s[run]
        return np.asarray(steps * self.dt_s[run] + growth_s)
