"""ARIMA(2, 1, 1): changes that depend on the last two changes and the last surprise."""

from __future__ import annotations

from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.cluster.forecasters._statsmodels import fitted, model_class
from dynosim.sim.cluster.forecasters.base import Forecaster
from dynosim.sim.cluster.forecasters.constant import Constant
from dynosim.sim.cluster.scaling.options import ScalingOptions

ORDER = (2, 1, 1)
_LEAST, _MOST = 12, 240
"""Fewer values do not determine the model; more than the last ones only slow the fit."""


class Arima:
    """Fits the recent past anew each time."""

    def __init__(self) -> None:
        self._model = model_class("arima.model", "ARIMA")

    def forecast(self, past: FloatArray, steps: int, /) -> FloatArray:
        """Returns the model's continuation; of a short or even past, its last value."""
        past = past[-_MOST:]
        if len(past) < _LEAST or past.min() == past.max():
            return Constant().forecast(past, steps)
        return fitted(self._model(past, order=ORDER).fit, steps)


def make(options: ScalingOptions) -> Forecaster:
    """Returns an ARIMA forecaster; raises UserError where statsmodels is not installed."""
    return Arima()
