"""A pool's replicas: who serves, starts, waits in reserve, drains or has failed."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator

import numpy as np
import simpy

from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.cluster.scaling.starter import Starter
from dynosim.sim.cluster.scaling.states import State

_HAD = (State.STARTING, State.READY)


class Fleet:
    """Replicas by number, at most ``size`` of them at once.

    ``on_change`` is called whenever the replicas that serve are others, ``is_idle`` says whether
    one has no request left, and ``on_start`` is called with each that has started, for what it
    begins without: a cache. Those that could be woken hold their GPUs asleep.
    """

    def __init__(
        self,
        env: simpy.Environment,
        starter: Starter,
        size: int,
        *,
        is_waking: bool,
        reserve: int,
        is_idle: Callable[[int], bool],
        on_start: Callable[[int], None],
        on_change: Callable[[], None],
    ) -> None:
        self._env = env
        self._starter = starter
        self.size = size
        self._rest = State.ASLEEP if is_waking else State.OFF
        self._reserve = reserve
        self._is_idle = is_idle
        self._on_start = on_start
        self._on_change = on_change
        self._states = [self._rest] * size
        # How often each has begun to start: tells a start that was given up.
        self._lives = [0] * size
        self._goals = [State.READY] * size
        self._changes = array("d")
        self._start_s = array("d")
        for number in range(size):
            self._note(number, 0.0)

    # --- what there is ------------------------------------------------------------------------

    def numbers(self, *states: State) -> list[int]:
        """Returns the replicas that are in any of some states, in order."""
        return [number for number, state in enumerate(self._states) if state in states]

    @property
    def ready(self) -> list[int]:
        """The replicas that serve."""
        return self.numbers(State.READY)

    @property
    def starting(self) -> int:
        """Replicas on their way to serve."""
        return sum(self._goals[number] == State.READY for number in self.numbers(State.STARTING))

    def state(self, number: int) -> State:
        """Returns the state of one replica."""
        return self._states[number]

    @property
    def changes(self) -> FloatArray:
        """(time_s, replica, state) rows so far."""
        return np.array(self._changes, dtype=np.float64).reshape(-1, 3)

    @property
    def start_s(self) -> FloatArray:
        """Seconds of the starts that were finished."""
        return np.array(self._start_s, dtype=np.float64)

    # --- more and fewer -----------------------------------------------------------------------

    def open(self, serving: int) -> None:
        """Begins with some replicas that serve, and the reserve, as if they had always been."""
        for number in range(serving):
            self._become(number, State.READY, 0.0)
        for number in range(serving, serving + self._reserve):
            self._become(number, State.WARM, 0.0)
        self._on_change()

    def resize(self, count: int, now_s: float) -> None:
        """Makes the replicas that serve or will serve ``count``."""
        missing = count - len(self.ready) - self.starting
        if missing > 0:
            self._add(missing, now_s)
        elif missing < 0:
            self._take_away(-missing, now_s)
        self._fill_reserve(now_s)

    def _add(self, missing: int, now_s: float) -> None:
        warm = self.numbers(State.WARM)[:missing]
        for number in warm:
            self._become(number, State.READY, now_s)
        if warm:
            self._on_change()
        for number in self.numbers(self._rest)[: missing - len(warm)]:
            self._start(number, State.READY, now_s)

    def _take_away(self, surplus: int, now_s: float) -> None:
        """Gives up starts, the newest first, then drains replicas from the highest number down."""
        starting = [n for n in self.numbers(State.STARTING) if self._goals[n] == State.READY]
        given_up = starting[::-1][:surplus]
        for number in given_up:
            self._rest_now(number, now_s)
        leaving = self.ready[::-1][: surplus - len(given_up)]
        for number in leaving:
            self._become(number, State.DRAINING, now_s)
        if leaving:
            self._on_change()
        for number in leaving:
            self.look(number, now_s)

    def _fill_reserve(self, now_s: float) -> None:
        starting = self.numbers(State.STARTING)
        coming = sum(self._goals[number] == State.WARM for number in starting)
        missing = self._reserve - len(self.numbers(State.WARM)) - coming
        for number in self.numbers(self._rest)[: max(missing, 0)]:
            self._start(number, State.WARM, now_s)

    def look(self, number: int, now_s: float) -> None:
        """Lets a draining replica go if it is idle."""
        if self._states[number] == State.DRAINING and self._is_idle(number):
            self._rest_now(number, now_s)

    def fail(self, number: int, now_s: float) -> None:
        """Takes a serving replica away at once."""
        self._become(number, State.FAILED, now_s)
        self._on_change()

    def repair(self, number: int, now_s: float) -> None:
        """Starts a failed replica again where it was."""
        if self._states[number] == State.FAILED:
            self._start(number, State.READY, now_s, is_restart=True)

    # --- states -------------------------------------------------------------------------------

    def _start(self, number: int, goal: State, now_s: float, is_restart: bool = False) -> None:
        self._lives[number] += 1
        self._goals[number] = goal
        self._become(number, State.STARTING, now_s)
        self._env.process(self._starting(number, self._lives[number], now_s, is_restart))

    def _starting(
        self, number: int, life: int, begun_s: float, is_restart: bool
    ) -> Generator[simpy.Event, None, None]:
        def is_wanted() -> bool:
            return self._lives[number] == life and self._states[number] == State.STARTING

        if not (yield from self._starter.run(number, is_restart, is_wanted)):
            return
        now_s = self._env.now
        self._start_s.append(now_s - begun_s)
        self._on_start(number)
        self._become(number, self._goals[number], now_s)
        if self._goals[number] == State.READY:
            self._on_change()

    def _rest_now(self, number: int, now_s: float) -> None:
        self._become(number, self._rest, now_s)

    def _become(self, number: int, state: State, now_s: float) -> None:
        self._states[number] = state
        self._note(number, now_s)

    def _note(self, number: int, now_s: float) -> None:
        self._changes.extend((now_s, number, self._states[number]))
