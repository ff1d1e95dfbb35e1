"""The autoscaler's loop: look, wait, decide, settle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dynosim.sim.cluster.autoscalers.base import Autoscaler
from dynosim.sim.cluster.scaling.agenda import Agenda
from dynosim.sim.cluster.scaling.fleet import Fleet
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.signals import Signals
from dynosim.sim.cluster.scaling.stabiliser import Stabiliser


class Control:
    """Looks at the fleet every interval, and resizes it by what was seen a scrape delay ago."""

    def __init__(
        self,
        agenda: Agenda,
        fleet: Fleet,
        autoscaler: Autoscaler,
        options: ScalingOptions,
        observe: Callable[[float], Signals],
        most: int,
    ) -> None:
        self._agenda = agenda
        self._fleet = fleet
        self._autoscaler = autoscaler
        self._interval_s = options.autoscaler_interval_s
        self._delay_s = options.autoscaler_scrape_delay_s
        self._stabiliser = Stabiliser(options, most)
        self._observe = observe
        self._ticks = 0

    def start(self) -> None:
        """Looks for the first time after one interval."""
        self._ticks += 1
        self._agenda.at(self._ticks * self._interval_s, self._look)

    def _look(self, now_s: float) -> None:
        seen = self._observe(now_s)
        if self._delay_s:
            self._agenda.at(now_s + self._delay_s, lambda then_s: self._decide(seen, then_s))
        else:
            self._decide(seen, now_s)
        self.start()

    def _decide(self, seen: Signals, now_s: float) -> None:
        fleet = self._fleet
        have = len(fleet.ready) + fleet.starting
        # How many replicas there are is asked of the cluster, and never late.
        ready = min(seen.ready, have)
        seen = replace(seen, ready=ready, starting=have - ready)
        count = self._stabiliser.settle(now_s, have, self._autoscaler.desired(seen))
        if count != have:
            fleet.resize(count, now_s)
