"""NVIDIA Dynamo on Kubernetes: a DynamoGraphDeployment with a frontend and workers.

The shape follows examples/backends/*/deploy/agg.yaml of ai-dynamo/dynamo (``nvidia.com/v1beta1``).
"""

from __future__ import annotations

import json
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports import sglang, trtllm, vllm
from dynosim.planning.exports.base import Candidate, Files, describe, need_backend

_ROUTERS = {"round_robin": "round-robin", "random": "random", "kv_aware": "kv"}
_ROUTER_FLAGS = {
    "router_overlap_weight": "--kv-overlap-score-weight",
    "router_temperature": "--router-temperature",
}
_IMAGES = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "trtllm": "tensorrtllm-runtime"}
_TAG = "my-tag"
"""Dynamo's release decides the engine's version; the user fills in theirs."""


def write(candidate: Candidate) -> Files:
    """Returns the manifest; UserError for a router that Dynamo's frontend does not have."""
    need_backend(candidate, "dynamo", *_IMAGES)
    words = ["dynamo.frontend", "--router-mode", *_router(candidate)]
    image = f"nvcr.io/nvidia/ai-dynamo/{_IMAGES[candidate.backend]}:{_TAG}"
    frontend = _container(image, words)
    worker = _container(image, [f"dynamo.{candidate.backend}", *_arguments(candidate)])
    worker["resources"] = {"limits": {"nvidia.com/gpu": str(candidate.deployment.gpus_per_replica)}}
    components = [
        _component("Frontend", "frontend", 1, frontend),
        _component("Worker", "worker", candidate.deployment.replicas, worker),
    ]
    graph = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": candidate.label},
        "spec": {"components": components},
    }
    head = [*describe(candidate)[:1], f"replace {_TAG} by a release with this engine's version"]
    return {"dynamo.yaml": "".join(f"# {h}\n" for h in head) + trtllm.yaml_text(graph)}


def _router(candidate: Candidate) -> list[str]:
    router = candidate.deployment.router
    if router not in _ROUTERS:
        raise UserError(
            f"Dynamo's frontend has no router {router!r}",
            where="router",
            hint=f"allowed: {', '.join(_ROUTERS)}",
        )
    words = [_ROUTERS[router]]
    for name, value in candidate.router_options().items():
        if name not in _ROUTER_FLAGS:
            raise UserError(
                "Dynamo's frontend has no such option",
                where=name,
                hint=f"allowed: {', '.join(_ROUTER_FLAGS)}",
            )
        words += [_ROUTER_FLAGS[name], f"{value:g}"]
    return words


def _arguments(candidate: Candidate) -> list[str]:
    if candidate.backend == "vllm":
        model, *words = vllm.arguments(candidate)
        return ["--model", model, *words]
    if candidate.backend == "sglang":
        return sglang.arguments(candidate)
    renamed = {
        "--tp_size": "--tensor-parallel-size",
        "--pp_size": "--pipeline-parallel-size",
        "--ep_size": "--expert-parallel-size",
        "--kv_cache_free_gpu_memory_fraction": "--free-gpu-memory-fraction",
    }
    words = [
        renamed.get(word, word.replace("_", "-") if word.startswith("--") else word)
        for word in trtllm.arguments(candidate)
    ]
    extra = trtllm.options(candidate)
    # The wrapper takes a Python dictionary's text, of which JSON without null and switches is one.
    override = ["--override-engine-args", _python_text(extra)] if extra else []
    return ["--model-path", candidate.model, *words, *override]


def _python_text(value: dict[str, Any]) -> str:
    return repr(json.loads(json.dumps(value)))


def _container(image: str, module_and_words: list[str]) -> dict[str, Any]:
    module, *words = module_and_words
    return {
        "name": "main",
        "image": image,
        "command": ["python3", "-m", module],
        "args": words,
        "envFrom": [{"secretRef": {"name": "hf-token-secret"}}],
    }


def _component(name: str, kind: str, replicas: int, container: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "replicas": replicas,
        "podTemplate": {"spec": {"containers": [container]}},
    }
