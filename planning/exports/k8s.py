"""Kubernetes: a Deployment with the replicas, and the Service before them."""

from __future__ import annotations

from typing import Any

from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.planning.exports import sglang, trtllm, vllm
from dynosim.planning.exports.base import PORT, Candidate, Files, describe, need_backend

_DIRECTORY = "/config"


def write(candidate: Candidate) -> Files:
    """Returns one manifest; the Service balances over ready replicas by itself."""
    need_backend(candidate, "k8s", "vllm", "sglang", "trtllm")
    objects = [*_options(candidate), _deployment(candidate), _service(candidate)]
    head = "".join(f"# {line}\n" for line in describe(candidate)[:1])
    return {"deployment.yaml": head + "---\n".join(map(trtllm.yaml_text, objects))}


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
    named = {"name": f"{candidate.label}-options"}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": data}]


def _deployment(candidate: Candidate) -> dict[str, Any]:
    labels = {"app": candidate.label}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": candidate.label, "labels": labels},
        "spec": {
            "replicas": candidate.deployment.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(candidate)},
        },
    }


def _pod(candidate: Candidate) -> dict[str, Any]:
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    # NCCL talks through shared memory, of which containers get 64 MB by default.
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
    ]
    if _options(candidate):
        mounts.append({"name": "options", "mountPath": _DIRECTORY})
        volumes.append({"name": "options", "configMap": {"name": f"{candidate.label}-options"}})
    gpus = candidate.deployment.gpus_per_replica
    secret = {"name": "hf-token-secret", "key": "HF_TOKEN", "optional": True}
    container = {
        "name": "engine",
        "image": image(candidate),
        "command": _command(candidate),
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": secret}}],
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
            "selector": {"app": candidate.label},
            "ports": [{"port": PORT, "targetPort": PORT}],
        },
    }
