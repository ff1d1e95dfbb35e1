"""Requests that wait for others: the turns of a conversation, the steps of an agent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.sim.workload.prefix_chains import offsets_of, take_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Turns:
    """Which requests each one waits for, and how long its client then thinks, or its tools run.

    ``before[offsets[i]:offsets[i + 1]]`` are the requests, all of smaller number, whose answers
    request ``i`` needs: none for the first turn, one for the next, several where an agent joins
    what it had spawned. It is sent ``think_s[i]`` after the last of them was complete at the
    client, and not before its arrival time.
    """

    before: IntArray
    offsets: IntArray
    think_s: FloatArray

    @classmethod
    def chained(cls, previous: IntArray, think_s: FloatArray) -> Turns:
        """Returns turns that wait for one other at most: ``previous``, -1 for none."""
        waits = previous >= 0
        offsets = offsets_of(waits.astype(np.int64))
        return cls(before=previous[waits], offsets=offsets, think_s=think_s)

    def kept(self, rows: IntArray) -> Turns:
        """Returns the turns of some requests, in a new order; nobody waits for one left out."""
        place = np.full(len(self.think_s), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        before, offsets = take_rows(place[self.before], self.offsets, rows)
        is_left = before >= 0
        owner = np.repeat(np.arange(len(rows)), np.diff(offsets))
        counts = np.bincount(owner[is_left], minlength=len(rows))
        return Turns(before=before[is_left], offsets=offsets_of(counts), think_s=self.think_s[rows])

    @property
    def is_first(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which requests wait for none."""
        return np.asarray(np.diff(self.offsets) == 0)

    def problem(self) -> str | None:
        """Returns in words what is wrong, None where nothing is."""
        n = len(self.think_s)
        if len(self.offsets) != n + 1 or self.offsets[0] or self.offsets[-1] != len(self.before):
            return "offsets of turns must rise from 0 to the number of waits"
        number = np.repeat(np.arange(n), np.diff(self.offsets))
        if (self.before < 0).any() or (self.before >= number).any():
            row = int(number[(self.before < 0) | (self.before >= number)][0])
            return f"request {row} waits for one that does not come before it"
        if not (np.isfinite(self.think_s) & (self.think_s >= 0.0)).all():
            return "think_s must be finite and >= 0"
        return None


class Waiting:
    """Which requests are still to come, while a run lasts."""

    def __init__(self, turns: Turns, fitting: Iterable[int]) -> None:
        fits = set(fitting)
        self._think_s: list[float] = turns.think_s.tolist()
        self._left: dict[int, int] = {}
        self._next: dict[int, list[int]] = {}
        bounds, before = turns.offsets.tolist(), turns.before.tolist()
        for index in fits:
            # What was refused at once nobody waits for.
            needed = {b for b in before[bounds[index] : bounds[index + 1]] if b in fits}
            if needed:
                self._left[index] = len(needed)
            for other in needed:
                self._next.setdefault(other, []).append(index)

    def waits(self, request: int) -> bool:
        """Whether a request has to wait for another."""
        return request in self._left

    def answered(self, request: int) -> list[tuple[int, float]]:
        """Returns the requests that waited for this one last, and how long each client thinks."""
        ready = []
        for index in self._next.pop(request, ()):
            self._left[index] -= 1
            if not self._left[index]:
                ready.append((index, self._think_s[index]))
        return ready
