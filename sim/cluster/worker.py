"""A replica on the SimPy clock: turns an engine's runs into events."""

from __future__ import annotations

import math
from collections.abc import Callable

import simpy
from simpy.events import NORMAL, EventPriority

from dynosim.sim.cluster.replica import Replica
from dynosim.sim.engine.sequence import Sequence

# At one instant arrivals come first (NORMAL), then ends of runs, then wake-ups of idle engines,
# so that requests that arrive together are batched together.
_RUN_END = EventPriority(NORMAL + 1)
_WAKE_UP = EventPriority(NORMAL + 2)


class RunEnd(simpy.Event):
    """The end of a run; ``number`` tells whether the run was cut short since."""

    def __init__(self, env: simpy.Environment, number: int, then: Callable[[simpy.Event], None]):
        # As simpy.Timeout does, without the detour over Event.__init__: one of these a run.
        self.env = env
        self.callbacks = [then]
        self.number = number
        self._ok = True
        self._defused = False
        self._value = None


class Worker:
    """Drives one replica. ``on_finish`` is called with each finished sequence and its end time,
    ``on_run_end``, if given, after every run that had an event.

    An event ends each run that reaches the ``horizon``, the time before which nothing from
    outside can concern the engine; runs that end before it follow each other without one
    (conservative lookahead, Chandy and Misra 1979). An arrival may cut a run short; the event of
    the old end is then stale and recognised by its number.
    """

    def __init__(
        self,
        env: simpy.Environment,
        engine: Replica,
        on_finish: Callable[[Sequence, float], None],
        horizon: Callable[[], float],
        on_run_end: Callable[[], None] | None = None,
    ) -> None:
        self.engine = engine
        self._env = env
        self._on_finish = on_finish
        self._horizon = horizon
        self._after_run = on_run_end
        self._is_busy = False
        self._run_number = 0
        self._run_end_s = 0.0

    def submit(self, seq: Sequence) -> None:
        """Queues a request now; wakes the engine, or cuts its run at the step in progress."""
        sooner_s = self.engine.enqueue(seq, self._env.now)
        if not self._is_busy:
            self._is_busy = True
            self._end_run_at(self._env.now, _WAKE_UP)
        elif sooner_s is not None:
            self._end_run_at(sooner_s, _RUN_END)

    def _end_run_at(self, time_s: float, priority: EventPriority) -> None:
        self._run_number += 1
        self._run_end_s = time_s
        event = RunEnd(self._env, self._run_number, self._on_run_end)
        delay_s = time_s - self._env.now
        self._env.schedule(event, priority=priority, delay=delay_s if delay_s > 0.0 else 0.0)

    def _on_run_end(self, event: simpy.Event) -> None:
        assert isinstance(event, RunEnd)
        if event.number != self._run_number:
            return
        end_s = self.engine.run_until(self._run_end_s, self._horizon(), self._on_finish)
        if end_s < math.inf:
            self._end_run_at(end_s, _RUN_END)
        else:
            self._is_busy = False
        if self._after_run is not None:
            self._after_run()
