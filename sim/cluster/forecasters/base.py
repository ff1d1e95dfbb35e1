"""The forecaster interface."""

from __future__ import annotations

from typing import Protocol

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.scaling.options import ScalingOptions


class Forecaster(Protocol):
    """Foretells a series from its past, one value an interval."""

    def forecast(self, past: FloatArray, steps: int, /) -> FloatArray:
        """Returns the next ``steps`` values of a series of at least one."""
        ...


def season_steps(options: ScalingOptions) -> int:
    """Returns the intervals of a season; raises UserError where no season is given."""
    season_s, interval_s = options.autoscaler_season_s, options.autoscaler_interval_s
    if season_s is None or season_s < 2 * interval_s:
        raise UserError(
            f"found {season_s}",
            where="autoscaler_season_s",
            hint=f"{options.autoscaler_forecaster} needs a period of two intervals or more",
        )
    return round(season_s / interval_s)
