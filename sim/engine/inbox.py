"""Requests that have arrived, at which the scheduler looks now and then."""

from __future__ import annotations

from collections import deque

from dynosim.sim.engine.sequence import Sequence

UNBOUNDED_STEPS = 1 << 40


class Inbox:
    """The waiting requests of an engine that receives every ``interval`` decode steps.

    Those received stand in ``queue``; steps are counted by whoever calls.
    """

    __slots__ = ("_interval", "_last_step", "_late", "_queue")

    def __init__(self, queue: deque[Sequence], interval: int) -> None:
        self._queue = queue
        self._interval = interval
        self._late: deque[Sequence] = deque()
        self._last_step = 0

    def append(self, seq: Sequence) -> None:
        """Adds a request that has just arrived."""
        self._late.append(seq)

    def remove(self, seq: Sequence) -> None:
        """Removes a request, received or not; raises ValueError where it is not."""
        (self._queue if seq in self._queue else self._late).remove(seq)

    def __len__(self) -> int:
        return len(self._queue) + len(self._late)

    def receive(self, step: int, *, at_once: bool) -> None:
        """Moves late arrivals to the queue before ``step`` if it is time, or ``at_once``.

        Receptions that found nobody, in a run of many steps, are made up for.
        """
        since = step - self._last_step
        if at_once or (since > 0 and since % self._interval == 0):
            self._last_step = step
            self._queue += self._late
            self._late.clear()
        else:
            self._last_step += since // self._interval * self._interval

    def most_steps(self, step: int, *, is_hidden: bool) -> int:
        """Returns how many steps may run before the next reception that may find somebody.

        ``is_hidden``: arrivals do not end a run, so that each reception must be looked at.
        """
        if not (self._late or self._queue or is_hidden):
            return UNBOUNDED_STEPS
        return self._interval - (step - self._last_step)
