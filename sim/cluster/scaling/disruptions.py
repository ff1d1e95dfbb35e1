"""Failures on the clock: replicas that crash or slow down, routers that restart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dynosim.sim.cluster.scaling.agenda import Agenda
from dynosim.sim.cluster.scaling.failures import Failure
from dynosim.sim.cluster.scaling.fleet import Fleet
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.states import State


class Disruptions:
    """Lets replicas and routers fail, as asked for and by chance.

    ``hang_up`` breaks the connections to a replica (None: to all) at a time, ``slow_down`` sets the
    factor that a replica's steps take, and ``reroute`` is called when routers go and come back.
    Crashes by chance come from a stream of each replica's own, by ``rng_of`` its number.
    """

    def __init__(
        self,
        agenda: Agenda,
        fleet: Fleet,
        options: ScalingOptions,
        rng_of: Callable[[int], np.random.Generator],
        *,
        hang_up: Callable[[int | None, float], None],
        slow_down: Callable[[int, float], None],
        reroute: Callable[[], None],
    ) -> None:
        self._agenda = agenda
        self._fleet = fleet
        self._repair_s = options.failure_repair_s
        self._rate = options.failure_rate_per_hour / 3600.0
        self._hang_up = hang_up
        self._slow_down = slow_down
        self._reroute = reroute
        self._rngs = [rng_of(number) for number in range(fleet.size)]
        # Of replicas that serve, what tells this period of service from the next.
        self._periods: dict[int, object] = {}
        self._routers_back_s = -math.inf
        self.crashes = 0

    def start(self, failures: Sequence[Failure]) -> None:
        """Puts the failures that were asked for on the agenda."""
        for failure in failures:
            self._agenda.at(failure.time_s, partial(self._strike, failure))

    def routers_are_away(self, now_s: float) -> bool:
        """Whether no router is there at a time."""
        return now_s < self._routers_back_s

    def watch(self, ready: Sequence[int], now_s: float) -> None:
        """Draws when each replica that has just begun to serve will crash."""
        if not self._rate:
            return
        for number in set(self._periods).difference(ready):
            del self._periods[number]
        for number in ready:
            if number not in self._periods:
                period = self._periods[number] = object()
                crash_s = now_s + float(self._rngs[number].exponential(1.0 / self._rate))
                self._agenda.at(crash_s, partial(self._chance, number, period))

    def _chance(self, number: int, period: object, now_s: float) -> None:
        if self._periods.get(number) is period:
            self._crash(number, self._repair_s, now_s)

    def _strike(self, failure: Failure, now_s: float) -> None:
        match failure.kind:
            case "crash":
                self._crash(failure.replica, self._repair_s, now_s)
            case "gpu_loss":
                self._crash(failure.replica, failure.seconds, now_s)
            case "slow":
                self._slow_down(failure.replica, failure.factor)
                end_s = now_s + failure.seconds
                self._agenda.at(end_s, lambda _: self._slow_down(failure.replica, 1.0))
            case "router":
                self._restart_routers(failure.seconds, now_s)

    def _crash(self, number: int, repair_s: float, now_s: float) -> None:
        if self._fleet.state(number) not in (State.READY, State.DRAINING):
            return
        self.crashes += 1
        self._fleet.fail(number, now_s)
        self._hang_up(number, now_s)
        self._agenda.at(now_s + repair_s, partial(self._fleet.repair, number))

    def _restart_routers(self, seconds: float, now_s: float) -> None:
        """Breaks every connection, and lets who comes wait until the routers are back."""
        self._routers_back_s = max(self._routers_back_s, now_s + seconds)
        self._reroute()
        self._hang_up(None, now_s)
        self._agenda.at(now_s + seconds, self._bring_routers_back)

    def _bring_routers_back(self, now_s: float) -> None:
        if now_s >= self._routers_back_s:
            self._routers_back_s = -math.inf
            self._reroute()
