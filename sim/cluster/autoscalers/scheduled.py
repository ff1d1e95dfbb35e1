"""Replicas by the clock."""

from __future__ import annotations

from bisect import bisect_right

from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.autoscalers.base import Autoscaler, ScalingContext
from dynosim.sim.cluster.scaling.signals import Signals


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
    text = context.options.autoscaler_schedule
    try:
        rows = [part.split(":") for part in (text or "").split(",")]
        pairs = [(float(time_s), int(count)) for time_s, count in rows]
    except ValueError:
        pairs = []
    times_s = [time_s for time_s, _ in pairs]
    if not pairs or times_s != sorted(times_s) or min(count for _, count in pairs) < 0:
        raise UserError(
            f"found {text!r}",
            where="autoscaler_schedule",
            hint='seconds and replicas in order of time, as in "0:2, 600:8, 1200:2"',
        )
    return Scheduled(times_s, [count for _, count in pairs])
