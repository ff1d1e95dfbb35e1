"""Level and trend, and a season where one is given, smoothed exponentially (Holt-Winters)."""

from __future__ import annotations

from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.cluster.forecasters._statsmodels import fitted, model_class
from dynosim.sim.cluster.forecasters.base import Forecaster, season_steps
from dynosim.sim.cluster.forecasters.constant import Constant
from dynosim.sim.cluster.scaling.options import ScalingOptions

_LEAST = 8
"""Fewer values say nothing of a trend."""


class HoltWinters:
    """Fits all of the past anew each time; damped, so that no trend lasts for ever."""

    def __init__(self, season: int | None) -> None:
        self._season = season
        self._model = model_class("holtwinters", "ExponentialSmoothing")

    def forecast(self, past: FloatArray, steps: int, /) -> FloatArray:
        """Returns the smoothed continuation; of a short past, its last value."""
        season = self._season
        if len(past) < _LEAST:
            return Constant().forecast(past, steps)
        has_season = season is not None and len(past) >= 2 * season
        model = self._model(
            past,
            trend="add",
            damped_trend=True,
            seasonal="add" if has_season else None,
            seasonal_periods=season if has_season else None,
        )
        return fitted(model.fit, steps)


def make(options: ScalingOptions) -> Forecaster:
    """Returns a Holt-Winters forecaster; raises UserError where statsmodels is not installed."""
    has_season = options.autoscaler_season_s is not None
    return HoltWinters(season_steps(options) if has_season else None)
