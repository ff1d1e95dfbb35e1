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
    """Drives one replica. ``on_finish`` is called with each finished sequence and its end time.

    ``on_step`` is called as a run begins, with its end, ``on_run_end`` after a run has ended and
    the next one begun.

    An event ends each run that reaches the ``horizon``, if there is one: the time before which
    nothing from outside can concern the engine (conservative lookahead, Chandy and Misra 1979).
    Runs that end before it follow each other without an event. An arrival may cut a run short; the
    event of the old end is then stale and recognised by its number.
    """

    def __init__(
        self,
        env: simpy.Environment,
        engine: Replica,
        on_finish: Callable[[Sequence, float], None],
        on_step: Callable[[float], None] | None = None,
        on_run_end: Callable[[], None] | None = None,
        horizon: Callable[[], float] | None = None,
    ) -> None:
        self.engine = engine
        self._env = env
        self._on_finish = on_finish
        self._on_step = on_step
        self._after_run = on_run_end
        self._horizon = horizon
        self._is_busy = False
        self._run_number = 0
        self._run_end_s = 0.0
        # Requests that nobody wants any more, until the step in progress ends; and their further
        # attempts, which the engine must not have beside them.
        self._leaving: list[Sequence] = []
        # Tokens that such requests had got here, by the requests' numbers.
        self.wasted: dict[int, int] = {}
        self._joining: dict[Sequence, Callable[[Sequence, float], float | None]] = {}

    def submit(self, seq: Sequence) -> None:
        """Queues a request now; wakes the engine, or cuts its run at the step in progress."""
        self._hand_in(seq, self.engine.enqueue)

    def expect(self, seq: Sequence) -> None:
        """Queues a request whose prompt another replica computes."""
        self._hand_in(seq, self.engine.expect)

    def _hand_in(self, seq: Sequence, take: Callable[[Sequence, float], float | None]) -> None:
        if self._leaving and any(gone.index == seq.index for gone in self._leaving):
            self._joining[seq] = take
            return
        self._look_again(take(seq, self._env.now))

    def load(self, seq: Sequence, *, with_token: bool) -> None:
        """Notes that the KV of an expected request has come, with its first token or without."""
        now_s = self._env.now
        sooner_s = self.engine.load(seq, now_s, with_token=with_token)
        if with_token and seq.output_tokens == 1:
            self._on_finish(seq, now_s)
        self._look_again(sooner_s)

    def free(self, seq: Sequence) -> None:
        """Frees the blocks that were kept of a finished request."""
        self.engine.free(seq)
        self._look_again()

    def discard(self, seq: Sequence) -> None:
        """Frees the blocks that were kept of a finished request, which came to nothing."""
        self.engine.void(seq)
        self.free(seq)

    def _look_again(self, sooner_s: float | None = None) -> None:
        """Wakes the engine, or lets its run end sooner."""
        if not self._is_busy or self._only_waits:
            self._is_busy = True
            self._end_run_at(self._env.now, _WAKE_UP)
        elif sooner_s is not None:
            self._end_run_at(sooner_s, _RUN_END)

    @property
    def _only_waits(self) -> bool:
        """Whether the engine runs nothing and will look again later, when some KV has come."""
        return not self.engine.run_steps and self._run_end_s > self._env.now

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
        if self._leaving:
            self._let_go()
        horizon_s = -math.inf if self._horizon is None else self._horizon()
        end_s = self.engine.run_until(self._run_end_s, horizon_s, self._on_finish)
        if end_s < math.inf:
            self._end_run_at(end_s, _RUN_END)
            if self._on_step is not None:
                self._on_step(end_s)
        else:
            self._is_busy = False
        if self._after_run is not None:
            self._after_run()

    # --- what nobody wants any more -----------------------------------------------------------

    def abort(self, seq: Sequence) -> None:
        """Gives up a request now; its engine lets go of it when the step in progress ends."""
        if self._joining.pop(seq, None) is not None:
            return
        self._leaving.append(seq)
        if self._is_busy and not self._only_waits:
            self.cut()
        else:
            # Its blocks may be taken although nothing runs: those of a prompt that is to come.
            self._look_again()

    def cut(self) -> None:
        """Ends the run in progress, if any, with its step in progress."""
        if self._is_busy and self.engine.run_steps > 1:
            self._end_run_at(self.engine.cut(self._env.now), _RUN_END)

    def _let_go(self) -> None:
        # Voiding one takes it out of those that the engine knows to have ended.
        for seq in tuple(self.engine.end()):
            if seq in self._leaving:
                self._leaving.remove(seq)
                self.engine.void(seq)
                self._waste(seq)
            else:
                self._on_finish(seq, self._run_end_s)
        for seq in self._leaving:
            assert self.engine.abort(seq), f"request {seq.index} is not where it was sent"
            self._waste(seq)
        self._leaving.clear()
        for seq, take in self._joining.items():
            take(seq, self._run_end_s)
        self._joining.clear()

    def _waste(self, seq: Sequence) -> None:
        self.wasted[seq.index] = self.wasted.get(seq.index, 0) + seq.emitted
