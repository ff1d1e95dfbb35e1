"""The states of a replica, and a run's record of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray


class State(IntEnum):
    """What a replica is doing; all but ``OFF`` hold its GPUs."""

    OFF = 0
    ASLEEP = 1
    STARTING = 2
    WARM = 3
    """Started, and kept in reserve."""
    READY = 4
    DRAINING = 5
    """Finishes what it has and takes nothing new."""
    FAILED = 6


@dataclass(frozen=True, kw_only=True)
class ScalingLog:
    """What became of every replica, and how often requests were tried again.

    ``changes`` has (time_s, replica, state) rows in order of time; the run ended at ``end_s``.
    ``start_s`` are the seconds that finished starts took; ``fallbacks`` of them began with a
    restore that failed. ``attempts`` are those of every request. ``infeasible`` says why no number
    of replicas keeps the SLO, empty where one may.
    """

    changes: FloatArray
    num_replicas: int
    end_s: float
    start_s: FloatArray
    fallbacks: int
    crashes: int
    attempts: IntArray
    held: int
    infeasible: str = ""

    def seconds(self, states: Iterable[State]) -> float:
        """Returns the replica-seconds spent in any of some states."""
        return sum(float(self._spent_s()[state]) for state in states)

    def _spent_s(self) -> FloatArray:
        spent_s = np.zeros(len(State))
        for replica in range(self.num_replicas):
            own = self.changes[self.changes[:, 1] == replica]
            bounds_s = np.minimum(np.append(own[:, 0], self.end_s), self.end_s)
            np.add.at(spent_s, own[:, 2].astype(np.int64), np.diff(bounds_s))
        return spent_s

    def counts(self, states: Iterable[State]) -> tuple[FloatArray, IntArray]:
        """Returns times and how many replicas are in any of some states from each on."""
        wanted = {int(state) for state in states}
        now = np.full(self.num_replicas, int(State.OFF))
        times_s: list[float] = []
        counts: list[int] = []
        for time_s, replica, state in self.changes.tolist():
            now[int(replica)] = int(state)
            count = int(np.isin(now, list(wanted)).sum())
            if times_s and times_s[-1] == time_s:
                counts[-1] = count
            elif not counts or counts[-1] != count:
                times_s.append(time_s)
                counts.append(count)
        return np.array(times_s), np.array(counts, dtype=np.int64)
