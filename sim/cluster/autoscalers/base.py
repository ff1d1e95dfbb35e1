"""The autoscaler interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.signals import Signals


class Autoscaler(Protocol):
    """Answers how many replicas a pool should have."""

    def desired(self, seen: Signals, /) -> int:
        """Returns the replicas wanted; those that are starting count as had."""
        ...


@dataclass(frozen=True, kw_only=True)
class ScalingContext:
    """What an autoscaler is made from; ``startup_s`` is what a start takes alone."""

    options: ScalingOptions
    startup_s: float = 0.0

    def target(self) -> float:
        """Returns the target; raises UserError where none is given."""
        target = self.options.autoscaler_target
        if target is None:
            raise UserError(
                f"{self.options.autoscaler} has no target",
                where="autoscaler_target",
                hint=f"give the {self.options.autoscaler_metric} that a replica should have",
            )
        return target
