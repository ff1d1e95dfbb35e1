"""What was a season ago comes again (seasonal naive)."""

from __future__ import annotations

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.cluster.forecasters.base import Forecaster, season_steps
from dynosim.sim.cluster.scaling.options import ScalingOptions


class Seasonal:
    """Foretells the value one season earlier; before there is one, the last value."""

    def __init__(self, season: int) -> None:
        self._season = season

    def forecast(self, past: FloatArray, steps: int, /) -> FloatArray:
        """Returns the values of the last season that fall on the same places of it."""
        if len(past) < self._season:
            return np.full(steps, past[-1])
        last = past[-self._season :]
        return np.asarray(last[np.arange(steps) % self._season])


def make(options: ScalingOptions) -> Forecaster:
    """Returns a seasonal forecaster."""
    return Seasonal(season_steps(options))
