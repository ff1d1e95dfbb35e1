"""What is stays."""

from __future__ import annotations

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.cluster.forecasters.base import Forecaster
from dynosim.sim.cluster.scaling.options import ScalingOptions


class Constant:
    """Foretells the last value."""

    def forecast(self, past: FloatArray, steps: int, /) -> FloatArray:
        """Returns the last value, again and again."""
        return np.full(steps, past[-1])


def make(options: ScalingOptions) -> Forecaster:
    """Returns a forecaster of no change."""
    return Constant()
