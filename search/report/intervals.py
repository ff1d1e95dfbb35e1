"""Where measurements of a trial are expected, from the errors of predictions like it."""

from __future__ import annotations

import math

from dynosim.accuracy.expectation import METRICS
from dynosim.accuracy.intervals import ErrorModel, read_model
from dynosim.accuracy.kinds import regime_of
from dynosim.hardware_models.calibration.overheads import gpu_class
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.llm.catalog import get_model
from dynosim.search.trial import Trial


def trial_intervals(
    trial: Trial, *, is_open: bool, model: ErrorModel | None = None
) -> dict[str, tuple[float, float]]:
    """Returns low and high ends that hold four measurements in five, by metric.

    Without what nothing like it was measured of; in an open loop (``is_open``) the rate of
    requests is the load's. ``model`` is by default the shipped one.
    """
    fields = _class_fields(trial)
    if fields is None:
        return {}
    model = model or read_model()
    found = {
        name: model.interval(name, trial.metrics.get(name, math.nan), fields)
        for name in METRICS
        if not (is_open and name == "request_throughput")
    }
    return {name: (i.low, i.high) for name, i in found.items() if i is not None}


def _class_fields(trial: Trial) -> dict[str, str] | None:
    """Returns what tells the class of a trial's errors; None for cards that are not at hand."""
    metrics, deployment = trial.metrics, trial.deployment
    # Of deployments with two pools nothing was measured.
    if deployment.prefill_replicas or not trial.timing:
        return None
    if not {"request_throughput", "mean_e2el_ms"} <= metrics.keys():
        return None
    try:
        gpu, model = get_gpu(deployment.gpu), get_model(deployment.model)
    except UserError:
        return None
    # Little's law: the mean number in the system is their rate times their mean stay.
    in_flight = metrics["request_throughput"] * metrics["mean_e2el_ms"] / 1e3
    return {
        "gpu": gpu.key,
        "gpu_class": gpu_class(gpu),
        "backend": deployment.backend,
        "model_class": "MoE" if model.is_moe else "dense",
        "basis": trial.timing,
        "regime": regime_of(in_flight / deployment.replicas),
    }
