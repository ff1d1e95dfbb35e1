"""As many replicas as the foretold request rate needs, started before it is there."""

from __future__ import annotations

import math

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module
from dynosim.sim.cluster.autoscalers.base import Autoscaler, ScalingContext
from dynosim.sim.cluster.forecasters.base import Forecaster
from dynosim.sim.cluster.scaling.signals import Signals


class Predictive:
    """Gives each replica ``target`` requests a second of the rate ``lead_s`` from now.

    It never plans for less than what comes now.
    """

    def __init__(self, forecaster: Forecaster, target: float, lead_s: float) -> None:
        self._forecaster = forecaster
        self._target = target
        self._lead_s = lead_s
        self._rates: list[float] = []

    def desired(self, seen: Signals, /) -> int:
        """Returns the replicas for the highest rate foretold within the lead."""
        rate = seen.total("request_rate")
        self._rates.append(rate)
        steps = max(1, math.ceil(self._lead_s / seen.interval_s))
        foretold = self._forecaster.forecast(np.array(self._rates), steps)
        highest = max(rate, float(np.max(foretold)))
        wanted = math.ceil(round(highest / self._target, 9))
        return max(wanted, 1) if seen.outstanding else wanted


def make(context: ScalingContext) -> Autoscaler:
    """Returns a predictive autoscaler; ``autoscaler_target`` is a replica's requests per second."""
    options = context.options
    if options.autoscaler_metric != "request_rate":
        raise UserError(
            f"predictive foretells the request rate, found {options.autoscaler_metric}",
            where="autoscaler_metric",
            hint="allowed: request_rate",
        )
    module = find_module(
        "dynosim.sim.cluster.forecasters", "forecaster", options.autoscaler_forecaster
    )
    lead_s = options.autoscaler_lead_s
    if lead_s is None:
        lead_s = context.startup_s + options.autoscaler_interval_s
    return Predictive(module.make(options), context.target(), lead_s)
