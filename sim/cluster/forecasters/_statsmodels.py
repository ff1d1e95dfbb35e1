"""statsmodels, which is an extra."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.errors import UserError


def model_class(module: str, name: str) -> Any:
    """Returns a class of statsmodels; raises UserError where that is not installed."""
    try:
        return getattr(importlib.import_module(f"statsmodels.tsa.{module}"), name)
    except ModuleNotFoundError as error:
        raise UserError(
            "this forecaster needs statsmodels",
            where="autoscaler_forecaster",
            hint="pip install 'dynosim[forecast]'",
        ) from error


def fitted(fit: Callable[[], Any], steps: int) -> FloatArray:
    """Returns the forecast of a fit, no value below 0; short series' warnings are kept quiet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.maximum(np.asarray(fit().forecast(steps), dtype=np.float64), 0.0)
