"""Events that reach into engines from outside: each is known before it comes."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush

import simpy


class Agenda:
    """Calls at given times; ``next_s`` is before what no engine may run ahead.

    ``now_s`` is the time of the call in progress, without the rounding of a clock that adds up
    delays. After :meth:`close` nothing is called any more.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._times_s: list[float] = []
        self._is_closed = False

    @property
    def next_s(self) -> float:
        """When the next call is due; infinity without one."""
        return self._times_s[0] if self._times_s else math.inf

    def at(self, time_s: float, then: Callable[[float], None]) -> None:
        """Calls ``then`` with the time, at that time."""
        if self._is_closed:
            return
        heappush(self._times_s, time_s)
        event = self._env.timeout(max(time_s - self._env.now, 0.0))
        assert event.callbacks is not None
        event.callbacks.append(lambda _: self._call(time_s, then))

    def _call(self, time_s: float, then: Callable[[float], None]) -> None:
        times_s = self._times_s
        while times_s and times_s[0] <= time_s:
            heappop(times_s)
        if not self._is_closed:
            then(time_s)

    def close(self) -> None:
        """Drops all that is still to come."""
        self._is_closed = True
        self._times_s.clear()
