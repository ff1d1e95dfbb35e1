"""What was measured like a trial, and how far an objective's prediction may be off."""

from __future__ import annotations

from dynosim.accuracy.kinds import quantity_of, regime_of
from dynosim.hardware_models.calibration.overheads import gpu_class
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.llm.catalog import get_model
from dynosim.search.metric import LATENCIES
from dynosim.search.trial import Trial

EXACT = ""
"""In place of a quantity: what is known without a measurement."""

_SPEEDS = ("output_tok_s_per_gpu", "total_tok_s_per_gpu", "output_throughput")
_SPEEDS_AS_WELL = ("total_token_throughput", "usd_per_million_output_tokens")
_COUNTS = ("num_gpus", "usd_per_hour", "quality")
_QUANTITIES = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "e2el": "e2el"}
"""Kinds of latencies that were measured; the gaps between tokens err as their mean does."""


def class_fields(trial: Trial) -> dict[str, str] | None:
    """Returns what tells the class of a trial's errors; None where nothing was measured like it."""
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


def error_of(metric: str, *, is_open: bool) -> tuple[str, float] | None:
    """Returns the quantity that a metric errs with, and the power of that error.

    ``EXACT`` for what the deployment or, in an open loop, the load decides; None for what nobody
    has measured (energy, shares of requests within limits). A percentile errs as the centre does.
    """
    if metric in _COUNTS:
        return EXACT, 0.0
    if metric in (*_SPEEDS, *_SPEEDS_AS_WELL):
        power = -1.0 if metric.startswith("usd") else 1.0
        return (EXACT, 0.0) if is_open else ("output_throughput", power)
    if metric in ("request_throughput", "duration"):
        power = -1.0 if metric == "duration" else 1.0
        return (EXACT, 0.0) if is_open else ("request_throughput", power)
    if metric == "output_tok_s_per_user":
        return "tpot", -1.0
    kind = quantity_of(metric).rpartition("_")[2]
    known = metric.endswith("_ms") and kind in LATENCIES and kind in _QUANTITIES
    return (_QUANTITIES[kind], 1.0) if known else None
