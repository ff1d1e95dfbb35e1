"""NVIDIA Dynamo on Kubernetes: a DynamoGraphDeployment with a frontend and workers.

The shape follows examples/backends/*/deploy/agg.yaml of ai-dynamo/dynamo (``nvidia.com/v1beta1``).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports import planner, sglang, trtllm, vllm
from dynosim.planning.exports.base import Candidate, Files, describe, need_backend

_ROUTERS = {"round_robin": "round-robin", "random": "random", "kv_aware": "kv"}
_ROUTER_FLAGS = {
    "router_overlap_weight": "--kv-overlap-score-weight",
    "router_temperature": "--router-temperature",
}
_IMAGES = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "trtllm": "tensorrtllm-runtime"}
_NIXL = ["--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}']
"""In Dynamo's examples, either role."""
_TAG = "my-tag"
"""Dynamo's release decides the engine's version; the user fills in theirs."""


def write(candidate: Candidate) -> Files:
    """Returns the manifest; UserError for a router that Dynamo's frontend does not have."""
    need_backend(candidate, "dynamo", *_IMAGES)
    words = ["dynamo.frontend", "--router-mode", *_router(candidate)]
    image = f"nvcr.io/nvidia/ai-dynamo/{_IMAGES[candidate.backend]}:{_TAG}"
    components = [_component("Frontend", "frontend", 1, _container(image, words))]
    config = planner.planner_config(candidate)
    if config:
        words = ["dynamo.planner", "--config", json.dumps(config)]
        own_image = f"nvcr.io/nvidia/ai-dynamo/dynamo-planner:{_TAG}"
        components.append(_component("Planner", "planner", 1, _container(own_image, words)))
    components += [_worker(own.unscaled, image) for own in candidate.pools]
    graph = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": candidate.label},
        "spec": {"components": components},
    }
    head = [*(describe(own)[0] for own in candidate.pools)]
    head.append(f"replace {_TAG} by a release with this engine's version")
    head += [planner.NOTES["sla"]] if config.get("optimization_target") == "sla" else []
    head += [planner.NOTES["budget"]] if config else []
    return {"dynamo.yaml": "".join(f"# {h}\n" for h in head) + trtllm.yaml_text(graph)}


def _worker(candidate: Candidate, image: str) -> dict[str, Any]:
    words = [f"dynamo.{candidate.backend}", *_arguments(candidate)]
    if candidate.role:
        words += ["--disaggregation-mode", candidate.role]
    container = _container(image, words)
    gpus = str(candidate.deployment.gpus_per_replica)
    container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    kind = candidate.role or "worker"
    name = f"{candidate.role.capitalize()}Worker"
    return _component(name, kind, candidate.deployment.replicas, container)


def _router(candidate: Candidate) -> list[str]:
    router = candidate.deployment.router
    if candidate.prefill is not None and candidate.prefill.deployment.router != router:
        raise UserError(
            "Dynamo's frontend has one router mode for both pools",
            where="prefill_router",
            hint="leave it out",
        )
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
    # Dynamo's wrappers name the mode of two pools themselves.
    alone = replace(candidate, role="")
    if candidate.backend == "vllm":
        model, *words = vllm.arguments(alone)
        return ["--model", model, *words, *(_NIXL if candidate.role else [])]
    if candidate.backend == "sglang":
        return sglang.arguments(alone)
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
