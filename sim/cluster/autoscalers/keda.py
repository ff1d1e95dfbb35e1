"""As many replicas as divide a total into targets: an external metric's AverageValue, as by KEDA.

keda.sh/docs/latest/concepts/scaling-deployments: KEDA itself switches between none and one, the
Horizontal Pod Autoscaler scales from one on: desired = ceil(total / target), nothing within the
tolerance of total / (current * target).
"""

from __future__ import annotations

import math

from dynosim.sim.cluster.autoscalers.base import Autoscaler, ScalingContext
from dynosim.sim.cluster.autoscalers.target_tracking import refuse_attainment
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.signals import Signals


class Keda:
    """Gives each replica ``target`` of the total."""

    def __init__(self, options: ScalingOptions, target: float) -> None:
        self._metric = options.autoscaler_metric
        self._tolerance = options.autoscaler_tolerance
        self._target = target

    def desired(self, seen: Signals, /) -> int:
        """Returns the replicas that the total needs; none only where there is no request."""
        have = seen.ready + seen.starting
        total = seen.total(self._metric)
        if not have:
            return 1 if total > 0.0 or seen.outstanding else 0
        if abs(total / (have * self._target) - 1.0) <= self._tolerance:
            return have
        wanted = math.ceil(round(total / self._target, 9))
        return max(wanted, 1) if seen.outstanding else wanted


def make(context: ScalingContext) -> Autoscaler:
    """Returns an autoscaler of totals."""
    refuse_attainment(context)
    return Keda(context.options, context.target())
