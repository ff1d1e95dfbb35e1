"""Some replicas more above one threshold, some fewer below another."""

from __future__ import annotations

from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.autoscalers.base import Autoscaler, ScalingContext
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.signals import Signals


class Threshold:
    """Compares the mean replica's metric; of SLO attainment less is worse, of all else more."""

    def __init__(self, options: ScalingOptions, upper: float, lower: float) -> None:
        self._metric = options.autoscaler_metric
        self._step = options.autoscaler_step
        self._upper = upper
        self._lower = lower

    def desired(self, seen: Signals, /) -> int:
        """Returns the replicas there are, a step more or a step fewer."""
        have = seen.ready + seen.starting
        value = seen.per_replica(self._metric)
        if self._metric == "slo_attainment":
            # Nobody answered: nothing is known, and NaN compares false.
            if value < self._upper or (not seen.ready and seen.waiting):
                return have + self._step
            return have - self._step if value > self._lower else have
        if value > self._upper:
            return have + self._step
        return have - self._step if value < self._lower else have


def make(context: ScalingContext) -> Autoscaler:
    """Returns a threshold autoscaler; raises UserError where the thresholds cross."""
    options, upper = context.options, context.target()
    falls = options.autoscaler_metric == "slo_attainment"
    lower = options.autoscaler_lower
    if lower is None:
        lower = (1.0 + upper) / 2 if falls else upper / 2
    if (lower < upper) if falls else (lower > upper):
        raise UserError(
            f"replicas would be added and taken away between {lower:g} and {upper:g}",
            where="autoscaler_lower",
            hint=f"allowed: {'>=' if falls else '<='} autoscaler_target",
        )
    return Threshold(options, upper, lower)
