"""Autoscalers as NVIDIA Dynamo's planner: a component with a PlannerConfig.

Its fields: docs.nvidia.com/dynamo, reference/components/planner-configuration (1.6), and
examples/backends/vllm/deploy/v1beta1/disagg_planner.yaml of ai-dynamo/dynamo.
"""

from __future__ import annotations

from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.deployment import Deployment

_SAID = {
    "autoscaler",
    "min_replicas",
    "max_replicas",
    "autoscaler_metric",
    "autoscaler_target",
    "autoscaler_lower",
    "autoscaler_interval_s",
    "autoscaler_slo_ttft_ms",
    "autoscaler_slo_tpot_ms",
    "failure_rate_per_hour",
    "failure_repair_s",
    "failures",
}
"""Options that the planner has, or that nobody decides."""
NOTES = {
    "sla": "the planner aims at the limits themselves, not at a share of answers that keeps them",
    "budget": "max_gpu_budget bounds all workers together: the planner knows no bound of one pool",
}


def planner_config(candidate: Candidate) -> dict[str, Any]:
    """Returns the PlannerConfig, empty where nobody scales; UserError for what it has no word for.

    slo_attainment becomes its ``sla`` target, kv_use of engines that decode its ``load`` target.
    """
    scaled = [own for own in candidate.pools if own.deployment.autoscaler is not None]
    for own in candidate.pools:
        _check_options(own)
    if not scaled:
        return {}
    first = scaled[0].deployment
    metrics = {own.deployment.autoscaler_metric for own in scaled}
    if metrics == {"slo_attainment"}:
        target = {"optimization_target": "sla"} | _limits(candidate)
    elif metrics == {"kv_use"} and all(own.role != "prefill" for own in scaled):
        target = {"optimization_target": "load"} | _kv_rates(first)
    else:
        raise UserError(
            f"Dynamo's planner does not scale by {' and '.join(sorted(metrics))} of these pools",
            where="autoscaler_metric",
            hint="allowed: slo_attainment, or kv_use where no prefill pool is scaled",
        )
    fewest = {own.deployment.min_replicas for own in scaled}
    if len(fewest) > 1:
        raise UserError("the planner has one bound for both pools", where="prefill_min_replicas")
    if 0 in fewest:
        raise UserError("the planner keeps one worker", where="min_replicas", hint=">= 1")
    return {
        "environment": "kubernetes",
        "backend": candidate.backend,
        "mode": _mode(candidate, scaled),
        **target,
        "enable_load_scaling": True,
        "enable_throughput_scaling": False,
        "pre_deployment_sweeping_mode": "none",
        "load_adjustment_interval_seconds": _interval(scaled),
        "min_endpoint": fewest.pop(),
        "max_gpu_budget": sum(own.deployment.num_gpus for own in candidate.pools),
        **{
            f"{own.role or 'decode'}_engine_num_gpu": own.deployment.gpus_per_replica
            for own in candidate.pools
        },
    }


def _mode(candidate: Candidate, scaled: list[Candidate]) -> str:
    if not candidate.role:
        return "agg"
    return "disagg" if len(scaled) > 1 else scaled[0].role


def _limits(candidate: Candidate) -> dict[str, float]:
    d = candidate.deployment
    named = {"ttft_ms": d.autoscaler_slo_ttft_ms, "itl_ms": d.autoscaler_slo_tpot_ms}
    return {name: value for name, value in named.items() if value is not None}


def _kv_rates(d: Deployment) -> dict[str, float]:
    if d.autoscaler_target is None:
        raise UserError("no target is given", where="autoscaler_target")
    lower = d.autoscaler_target / 2 if d.autoscaler_lower is None else d.autoscaler_lower
    rates = {"up": d.autoscaler_target, "down": lower}
    return {f"decode_scale_{way}_kv_rate": round(100.0 * rate, 6) for way, rate in rates.items()}


def _interval(scaled: list[Candidate]) -> int:
    found = {own.deployment.autoscaler_interval_s for own in scaled}
    seconds = found.pop()
    if found or seconds != round(seconds):
        raise UserError(
            "the planner looks at both pools every so many whole seconds",
            where="autoscaler_interval_s",
        )
    return round(seconds)


def _check_options(candidate: Candidate) -> None:
    d = candidate.deployment
    if d.autoscaler not in (None, "threshold"):
        raise UserError(
            f"Dynamo's planner is no {d.autoscaler} autoscaler",
            where=candidate.key("autoscaler"),
            hint="allowed: threshold",
        )
    for field, given in ScalingOptions.__dataclass_fields__.items():
        if field not in _SAID and getattr(d, field) != given.default:
            raise UserError(
                "Dynamo's planner has no such option",
                where=candidate.key(field),
                hint="leave it out",
            )
