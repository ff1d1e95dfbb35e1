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


def metric_interval(
    trial: Trial, metric: str, *, is_open: bool, model: ErrorModel | None = None
) -> tuple[float, float] | None:
    """Returns the interval of any metric that errs as one of METRICS does; None for others.

    Percentiles of a latency are taken to err as its mean; speed per user is the inverse of TPOT,
    tokens per second go with requests per second.
    """
    base, power = _stands_for(metric)
    found = trial_intervals(trial, is_open=is_open, model=model).get(base)
    if found is None or metric not in trial.metrics:
        return None
    factors = sorted((end / trial.metrics[base]) ** power for end in found)
    return trial.metrics[metric] * factors[0], trial.metrics[metric] * factors[1]


def _stands_for(metric: str) -> tuple[str, int]:
    """Returns the metric of METRICS that another errs with, and as which power of it."""
    if metric == "output_tok_s_per_user":
        return "mean_tpot_ms", -1
    if metric.endswith(("_throughput", "_tok_s_per_gpu")):
        return "request_throughput", 1
    return f"mean_{metric.partition('_')[2]}", 1
