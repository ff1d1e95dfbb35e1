"""Autoscalers in Kubernetes' words: a HorizontalPodAutoscaler, or KEDA's ScaledObject.

Their fields: kubernetes.io, HorizontalPodAutoscaler v2; keda.sh, ScaledObject specification and
Prometheus scaler (2.15 on).
"""

from __future__ import annotations

from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate
from dynosim.sim.cluster.scaling.options import ScalingOptions

PROMETHEUS = "http://prometheus.monitoring.svc:9090"
"""Where engines' metrics are; the user fills in theirs."""
_METRICS = {
    "vllm": {
        "queue": ("vllm:num_requests_waiting",),
        "concurrency": ("vllm:num_requests_waiting", "vllm:num_requests_running"),
        "kv_use": ("vllm:kv_cache_usage_perc",),
    },
    "sglang": {
        "queue": ("sglang:num_queue_reqs",),
        "concurrency": ("sglang:num_queue_reqs", "sglang:num_running_reqs"),
        "kv_use": ("sglang:token_usage",),
    },
}
_SAID = (
    "autoscaler",
    "min_replicas",
    "max_replicas",
    "autoscaler_metric",
    "autoscaler_target",
    "autoscaler_up_window_s",
    "autoscaler_down_window_s",
    "failure_rate_per_hour",
    "failure_repair_s",
    "failures",
)
"""Options that the objects say, or that nobody decides."""
_SYNC_S = 15.0


def autoscaler_of(candidate: Candidate, name: str) -> list[dict[str, Any]]:
    """Returns the object that scales the Deployment called ``name``; none where nobody does.

    UserError for a policy, a metric or an option that neither has.
    """
    d = candidate.deployment
    makers = {"target_tracking": _pod_autoscaler, "keda": _scaled_object}
    if d.autoscaler is not None and d.autoscaler not in makers:
        raise UserError(
            f"Kubernetes has no {d.autoscaler} autoscaler",
            where=candidate.key("autoscaler"),
            hint=f"allowed: {', '.join(makers)}",
        )
    _check_options(candidate)
    if d.autoscaler is None:
        return []
    if d.min_replicas == 0:
        raise UserError(
            "with the last engine its metrics are gone, and nothing asks for the first one again",
            where=candidate.key("min_replicas"),
            hint="allowed: >= 1",
        )
    return [makers[d.autoscaler](candidate, name)]


def _check_options(candidate: Candidate) -> None:
    d = candidate.deployment
    for field, given in ScalingOptions.__dataclass_fields__.items():
        value = getattr(d, field)
        is_cluster_wide = field == "autoscaler_interval_s" and value == _SYNC_S
        if field not in _SAID and value != given.default and not is_cluster_wide:
            raise UserError(
                "no field of a HorizontalPodAutoscaler or ScaledObject says this",
                where=candidate.key(field),
                hint=f"leave it out: {given.default} is what clusters do"
                if field in ("autoscaler_interval_s", "autoscaler_tolerance")
                else "leave it out",
            )


def _metrics(candidate: Candidate) -> tuple[str, ...]:
    known = _METRICS.get(candidate.backend, {})
    metric = candidate.deployment.autoscaler_metric
    if metric not in known:
        raise UserError(
            f"{candidate.backend} publishes no gauge of {metric}",
            where=candidate.key("autoscaler_metric"),
            hint=f"allowed: {', '.join(known) or 'none'}",
        )
    return known[metric]


def _pod_autoscaler(candidate: Candidate, name: str) -> dict[str, Any]:
    metrics = _metrics(candidate)
    if len(metrics) > 1:
        raise UserError(
            "a HorizontalPodAutoscaler looks at one gauge, and this is a sum of two",
            where=candidate.key("autoscaler_metric"),
            hint="allowed: queue, kv_use; or autoscaler keda",
        )
    d = candidate.deployment
    # Adapters of the custom metrics API serve no name with a colon in it.
    metric = {"name": metrics[0].replace(":", "_")}
    target = {"type": "AverageValue", "averageValue": _quantity(candidate)}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": d.min_replicas,
            "maxReplicas": d.max_replicas,
            "metrics": [{"type": "Pods", "pods": {"metric": metric, "target": target}}],
            "behavior": _behavior(candidate),
        },
    }


def _scaled_object(candidate: Candidate, name: str) -> dict[str, Any]:
    d = candidate.deployment
    # Pods of a Deployment are called after it.
    sums = [f'sum({metric}{{pod=~"{name}-.*"}})' for metric in _metrics(candidate)]
    trigger = {
        "type": "prometheus",
        "metadata": {
            "serverAddress": PROMETHEUS,
            "query": " + ".join(sums),
            "threshold": f"{_target(candidate):g}",
        },
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": d.min_replicas,
            "maxReplicaCount": d.max_replicas,
            "triggers": [trigger],
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(candidate)}},
        },
    }


def _behavior(candidate: Candidate) -> dict[str, Any]:
    d = candidate.deployment
    windows = {"scaleUp": d.autoscaler_up_window_s, "scaleDown": d.autoscaler_down_window_s}
    return {way: {"stabilizationWindowSeconds": round(s)} for way, s in windows.items()}


def _target(candidate: Candidate) -> float:
    target = candidate.deployment.autoscaler_target
    if target is None:
        raise UserError("no target is given", where=candidate.key("autoscaler_target"))
    return target


def _quantity(candidate: Candidate) -> str:
    """Returns the target as a Kubernetes quantity, which has no fractions but thousandths."""
    target = _target(candidate)
    return f"{target:g}" if target == round(target) else f"{round(target * 1000)}m"
