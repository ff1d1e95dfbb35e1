"""Kubernetes: a Deployment with the replicas, and the Service before them."""

from __future__ import annotations

from typing import Any

from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.planning.exports import autoscaling, pd_router, sglang, trtllm, vllm
from dynosim.planning.exports.base import (
    PORT,
    Candidate,
    Files,
    describe,
    need_backend,
    need_one_pool,
)

_DIRECTORY = "/config"
_VLLM_ROUTER = "my-registry/vllm-router:my-tag"
"""Of which no public image is documented; the user fills in theirs."""


def write(candidate: Candidate) -> Files:
    """Returns one manifest; the Service balances over ready replicas by itself.

    Of two pools each is a Deployment, before which stands the backend's own router.
    """
    need_backend(candidate, "k8s", "vllm", "sglang", "trtllm")
    if candidate.backend == "trtllm":
        need_one_pool(candidate, "k8s with trtllm")
    objects = []
    for own in candidate.pools:
        alone = own.unscaled
        objects += [*_options(alone), _deployment(alone)]
        objects += autoscaling.autoscaler_of(own, _name(own))
    objects += _router(candidate.unscaled) if candidate.role else []
    objects.append(_service(candidate))
    head = [*(describe(own)[0] for own in candidate.pools), *_fill_in(candidate, objects)]
    text = "".join(f"# {line}\n" for line in head)
    return {"deployment.yaml": text + "---\n".join(map(trtllm.yaml_text, objects))}


def _fill_in(candidate: Candidate, objects: list[dict[str, Any]]) -> list[str]:
    """Returns what the user has to fill in or to provide."""
    kinds = {found["kind"] for found in objects}
    lines = []
    if candidate.role and candidate.backend == "vllm":
        lines.append(f"replace {_VLLM_ROUTER} by an image of vllm-router")
    if "ScaledObject" in kinds:
        lines.append(f"replace {autoscaling.PROMETHEUS} by the address of your Prometheus")
    if "HorizontalPodAutoscaler" in kinds:
        lines.append("an adapter must serve the engines' gauges as custom metrics of their pods")
    return lines


def _name(candidate: Candidate) -> str:
    return f"{candidate.label}-{candidate.role}" if candidate.role else candidate.label


def _router(candidate: Candidate) -> list[dict[str, Any]]:
    """Returns the router of two pools, and what lets it find their pods."""
    name = f"{candidate.label}-router"
    labels = {"app": name}
    words = [*pd_router.command(candidate), *pd_router.discovery(candidate)]
    container = {
        "name": "router",
        "image": _VLLM_ROUTER if candidate.backend == "vllm" else image(candidate),
        "command": [*words, "--host", "0.0.0.0", "--port", str(PORT)],
        "ports": [{"containerPort": PORT}],
    }
    pod = {"serviceAccountName": name, "containers": [container]}
    spec = {
        "replicas": candidate.deployment.router_replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    group = "rbac.authorization.k8s.io"
    meta = {"name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "subjects": [{"kind": "ServiceAccount", "name": name}],
            "roleRef": {"kind": "Role", "name": name, "apiGroup": group},
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec},
    ]


def image(candidate: Candidate) -> str:
    """Returns the vendor's container image for the backend's version."""
    row = read_yaml(DATA / "launch" / "images.yaml")[candidate.backend]
    return str(row["image"]).format(version=candidate.version)


def _command(candidate: Candidate) -> list[str]:
    port = ["--port", str(PORT)]
    if candidate.backend == "vllm":
        return ["vllm", "serve", *vllm.arguments(candidate), *port]
    host = ["--host", "0.0.0.0", *port]
    if candidate.backend == "sglang":
        return ["python3", "-m", "sglang.launch_server", *sglang.arguments(candidate), *host]
    words = ["trtllm-serve", candidate.model, *trtllm.arguments(candidate), *host]
    if trtllm.options(candidate):
        words += ["--extra_llm_api_options", f"{_DIRECTORY}/{trtllm.OPTIONS}"]
    return words


def _options(candidate: Candidate) -> list[dict[str, Any]]:
    """Returns the ConfigMap of TensorRT-LLM's options file, where there is one."""
    extra = trtllm.options(candidate) if candidate.backend == "trtllm" else {}
    if not extra:
        return []
    data = {trtllm.OPTIONS: trtllm.yaml_text(extra)}
    named = {"name": f"{_name(candidate)}-options"}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": data}]


def _deployment(candidate: Candidate) -> dict[str, Any]:
    labels = pd_router.pod_labels(candidate)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _name(candidate), "labels": labels},
        "spec": {
            "replicas": candidate.deployment.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, **_annotations(candidate)},
                "spec": _pod(candidate),
            },
        },
    }


def _annotations(candidate: Candidate) -> dict[str, Any]:
    """Returns where SGLang's router finds the port at which KV is asked for."""
    if candidate.backend != "sglang" or candidate.role != "prefill":
        return {}
    return {"annotations": {"sglang.ai/bootstrap-port": str(pd_router.BOOTSTRAP_PORT)}}


def _environment(candidate: Candidate) -> list[dict[str, Any]]:
    secret = {"name": "hf-token-secret", "key": "HF_TOKEN", "optional": True}
    found: list[dict[str, Any]] = [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": secret}}]
    if candidate.role and candidate.backend == "vllm":
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        found.append({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address})
    return found


def _pod(candidate: Candidate) -> dict[str, Any]:
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    # NCCL talks through shared memory, of which containers get 64 MB by default.
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
    ]
    if _options(candidate):
        mounts.append({"name": "options", "mountPath": _DIRECTORY})
        volumes.append({"name": "options", "configMap": {"name": f"{_name(candidate)}-options"}})
    gpus = candidate.deployment.gpus_per_replica
    container = {
        "name": "engine",
        "image": image(candidate),
        "command": _command(candidate),
        "env": _environment(candidate),
        "ports": [{"containerPort": PORT}],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 10},
        "volumeMounts": mounts,
    }
    return {"containers": [container], "volumes": volumes}


def _service(candidate: Candidate) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": candidate.label},
        "spec": {
            "selector": {"app": f"{candidate.label}-router" if candidate.role else candidate.label},
            "ports": [{"port": PORT, "targetPort": PORT}],
        },
    }
