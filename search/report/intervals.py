"""Where measurements of a trial are expected, from the errors of predictions like it."""

from __future__ import annotations

import math

from dynosim.accuracy.expectation import METRICS
from dynosim.accuracy.intervals import ErrorModel, read_model
from dynosim.search.likeness import class_fields
from dynosim.search.trial import Trial


def trial_intervals(
    trial: Trial, *, is_open: bool, model: ErrorModel | None = None
) -> dict[str, tuple[float, float]]:
    """Returns low and high ends that hold four measurements in five, by metric.

    Without what nothing like it was measured of; in an open loop (``is_open``) the rate of
    requests is the load's. ``model`` is by default the shipped one.
    """
    fields = class_fields(trial)
    if fields is None:
        return {}
    model = model or read_model()
    found = {
        name: model.interval(name, trial.metrics.get(name, math.nan), fields)
        for name in METRICS
        if not (is_open and name == "request_throughput")
    }
    return {name: (i.low, i.high) for name, i in found.items() if i is not None}
