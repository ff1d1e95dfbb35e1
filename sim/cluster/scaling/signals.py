"""What an autoscaler sees."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dynosim.sim.cluster.scaling.options import ScalingMetric


@dataclass(frozen=True, kw_only=True)
class Signals:
    """The state of a pool at one time.

    ``ready`` replicas serve, ``starting`` ones will. ``waiting`` requests have not entered an
    engine, ``outstanding`` ones are not finished; requests for which there is no replica are among
    both. ``kv_use`` is the mean share of KV blocks held. ``arrivals`` came within the last
    ``interval_s``; of the first tokens within it, ``slo_attainment`` kept the SLO (NaN: there were
    none).
    """

    time_s: float
    ready: int
    starting: int = 0
    waiting: int = 0
    outstanding: int = 0
    kv_use: float = 0.0
    arrivals: int = 0
    interval_s: float = 1.0
    slo_attainment: float = math.nan

    def total(self, metric: ScalingMetric) -> float:
        """Returns the metric summed over the replicas that serve."""
        match metric:
            case "queue":
                return float(self.waiting)
            case "concurrency":
                return float(self.outstanding)
            case "request_rate":
                return self.arrivals / self.interval_s
            case "kv_use":
                return self.kv_use * self.ready
            case "slo_attainment":
                return self.slo_attainment * self.ready

    def per_replica(self, metric: ScalingMetric) -> float:
        """Returns the metric of the mean serving replica; infinity for a load without one."""
        total = self.total(metric)
        if self.ready:
            return total / self.ready
        return math.inf if total > 0.0 else 0.0
