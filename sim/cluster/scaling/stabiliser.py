"""Bounds, stabilisation windows and cooldown: what is done of what an autoscaler wants."""

from __future__ import annotations

import math
from collections import deque

from dynosim.sim.cluster.scaling.options import ScalingOptions


class Stabiliser:
    """The Horizontal Pod Autoscaler's stabilisation, and a cooldown.

    kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale ("Stabilization window"):
    replicas are added up to the least that was wanted within the up window, and taken away down to
    the most that was wanted within the down window.
    """

    def __init__(self, options: ScalingOptions, most: int) -> None:
        self._least, self._most = options.min_replicas, most
        self._up_s = options.autoscaler_up_window_s
        self._down_s = options.autoscaler_down_window_s
        self._cooldown_s = options.autoscaler_cooldown_s
        self._wanted: deque[tuple[float, int]] = deque()
        self._changed_s = -math.inf

    def settle(self, now_s: float, have: int, desired: int) -> int:
        """Returns the replicas to have from now on, of ``have`` now; notes what was desired."""
        desired = min(max(desired, self._least), self._most)
        wanted = self._wanted
        wanted.append((now_s, desired))
        while wanted[0][0] < now_s - max(self._up_s, self._down_s):
            wanted.popleft()
        at_most = min(count for time_s, count in wanted if time_s >= now_s - self._up_s)
        at_least = max(count for time_s, count in wanted if time_s >= now_s - self._down_s)
        settled = max(have, at_most) if have < at_most else min(have, at_least)
        settled = min(max(settled, self._least), self._most)
        if settled == have or now_s < self._changed_s + self._cooldown_s:
            return have
        self._changed_s = now_s
        return settled
