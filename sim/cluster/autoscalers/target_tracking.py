"""As many replicas as bring the mean to its target: the Horizontal Pod Autoscaler's rule.

kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale ("Algorithm details"): desired =
ceil(current * value / target), nothing within the tolerance. Replicas that are not ready count as
idle where the ready ones ask for more, and as at their target where they ask for fewer; where that
turns the answer round, nothing is done.
"""

from __future__ import annotations

import math

from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.autoscalers.base import Autoscaler, ScalingContext
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.signals import Signals


class TargetTracking:
    """Keeps the mean replica's metric at ``target``."""

    def __init__(self, options: ScalingOptions, target: float) -> None:
        self._metric = options.autoscaler_metric
        self._tolerance = options.autoscaler_tolerance
        self._target = target

    def desired(self, seen: Signals, /) -> int:
        """Returns the replicas by the ratio of value and target."""
        have = seen.ready + seen.starting
        total = seen.total(self._metric)
        if not seen.ready:
            # Only what waits for a first replica can ask for one.
            return max(have, 1) if seen.outstanding else have
        ratio = total / seen.ready / self._target
        if self._within(ratio):
            return have
        if not seen.starting:
            return math.ceil(round(seen.ready * ratio, 9))
        counted = total if ratio > 1.0 else total + seen.starting * self._target
        revised = counted / have / self._target
        if self._within(revised) or (revised > 1.0) != (ratio > 1.0):
            return have
        return math.ceil(round(have * revised, 9))

    def _within(self, ratio: float) -> bool:
        return abs(ratio - 1.0) <= self._tolerance


def make(context: ScalingContext) -> Autoscaler:
    """Returns a target-tracking autoscaler; raises UserError for a metric that no count divides."""
    refuse_attainment(context)
    return TargetTracking(context.options, context.target())


def refuse_attainment(context: ScalingContext) -> None:
    """Raises UserError where the metric is a share of answers, which replicas do not divide."""
    if context.options.autoscaler_metric == "slo_attainment":
        raise UserError(
            f"{context.options.autoscaler} divides its metric by replicas, and slo_attainment is "
            "none that grows with load",
            where="autoscaler_metric",
            hint="allowed: queue, concurrency, kv_use, request_rate; or autoscaler threshold",
        )
