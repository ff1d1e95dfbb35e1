"""Replicas by the clock."""

from __future__ import annotations

from bisect import bisect_right

from dynosim.sim.cluster.autoscalers.base import Autoscaler, ScalingContext
from dynosim.sim.cluster.scaling.signals import Signals
from dynosim.sim.timetable import parse_timetable


class Scheduled:
    """Has ``counts[i]`` replicas from ``times_s[i]`` on."""

    def __init__(self, times_s: list[float], counts: list[int]) -> None:
        self._times_s = times_s
        self._counts = counts

    def desired(self, seen: Signals, /) -> int:
        """Returns the replicas of the hour; before the first, those there are."""
        place = bisect_right(self._times_s, seen.time_s) - 1
        return self._counts[place] if place >= 0 else seen.ready + seen.starting


def make(context: ScalingContext) -> Autoscaler:
    """Returns a scheduled autoscaler; raises UserError where the schedule is none."""
    times_s, counts = parse_timetable(
        context.options.autoscaler_schedule, where="autoscaler_schedule", what="replicas"
    )
    return Scheduled(times_s, [int(count) for count in counts])
