"""Shapes that an engine refuses before it looks at memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields

from dynosim.hardware_models.data_parallel import has_multi_node_nvlink
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.memory.weights import padded_vocabulary
from dynosim.hardware_models.resolve import ResolvedEngine

# Compute capability from which a weight format can be served at all, natively or by Marlin's
# weight-only kernels (vLLM, supported hardware for quantisation kernels, 2025-12).
_LEAST_CAPABILITY = {
    "fp8": 7.5,
    "fp8_block": 7.5,
    "int8": 7.5,
    "int8_weight_only": 7.5,
    "int4": 7.5,
    "nvfp4": 7.5,
    "mxfp4": 8.0,
}
# Where tensor cores compute in the format; below, weights are expanded on the fly.
_NATIVE_CAPABILITY = {"fp8": 8.9, "fp8_block": 8.9, "nvfp4": 10.0}
_FP8_BLOCK = 128
_MULTI_NODE_NVLINK = ("nvlink_one_sided", "nvlink_two_sided")
_GATHERED = "allgather_reducescatter"


def violated_rule(engine: ResolvedEngine) -> str | None:
    """Returns why vLLM would refuse the shapes of this engine; None where it would not."""
    return next(_violations(engine), None)


def blamed_option(engine: ResolvedEngine) -> str:
    """Returns the option that the violated rule names first; ``memory`` where none is violated."""
    names = {field.name for field in fields(EngineArgs)}
    words = re.findall(r"\w+", violated_rule(engine) or "")
    return next((word for word in words if word in names), "memory")


def shape_notes(engine: ResolvedEngine) -> tuple[str, ...]:
    """Returns what runs, but not as the format's name suggests."""
    formats = {engine.model.quantization.linear, engine.model.quantization.experts}
    return tuple(
        f"{name} weights on {engine.gpu.key}: stored as {name}, computed in 16 bits"
        for name in sorted(formats)
        if engine.gpu.compute_capability < _NATIVE_CAPABILITY.get(name, 0.0)
    )


def _violations(engine: ResolvedEngine) -> Iterator[str]:
    yield from _parallel(engine)
    yield from _data_parallel(engine)
    yield from _formats(engine)


def _parallel(engine: ResolvedEngine) -> Iterator[str]:
    model, tp, pp = (
        engine.model,
        engine.args.tensor_parallel_size,
        engine.args.pipeline_parallel_size,
    )
    heads, key_value = model.num_attention_heads, model.num_key_value_heads
    if heads % tp:
        yield f"tensor_parallel_size {tp} does not divide {heads} attention heads"
    if model.mla is None and max(key_value, tp) % min(key_value, tp):
        yield f"tensor_parallel_size {tp} and {key_value} key-value heads do not divide"
    if tp > engine.gpu.near_gpus and not engine.args.tensor_parallel_across_nodes:
        yield (
            f"a group of tensor_parallel_size {tp} does not fit the {engine.gpu.near_gpus} "
            f"{engine.gpu.key} of a node; tensor_parallel_across_nodes lets it use the network"
        )
    vocabulary = padded_vocabulary(model)
    if vocabulary % tp:
        yield f"tensor_parallel_size {tp} does not divide the vocabulary of {vocabulary}"
    if pp > model.num_layers:
        yield f"pipeline_parallel_size {pp} exceeds {model.num_layers} layers"
    if engine.args.enable_expert_parallel and not model.is_moe:
        yield "enable_expert_parallel needs a model with experts"


def _data_parallel(engine: ResolvedEngine) -> Iterator[str]:
    args, moe, gpus = engine.args, engine.model.moe, engine.expert_gpus
    if args.all2all_backend in _MULTI_NODE_NVLINK and not has_multi_node_nvlink(engine.gpu):
        yield f"all2all_backend {args.all2all_backend} needs NVLink that joins nodes (GB200, GB300)"
    if engine.ranks_in_step == 1 or moe is None:
        return
    ranks = f"data_parallel_size {args.data_parallel_size}"
    if args.tensor_parallel_size > 1:
        ranks += f" x tensor_parallel_size {args.tensor_parallel_size}"
    if args.pipeline_parallel_size > 1:
        yield f"{ranks} with pipeline stages: ranks that share experts are simulated without"
    if args.enable_expert_parallel and moe.num_experts % gpus:
        yield f"{ranks} = {gpus} GPUs do not divide {moe.num_experts} experts"
    if not args.enable_expert_parallel and moe.moe_intermediate_size % gpus:
        yield (
            f"{ranks} = {gpus} GPUs do not divide experts of width {moe.moe_intermediate_size} "
            "(expert parallelism keeps them whole)"
        )
    if args.all2all_backend not in (None, _GATHERED) and not args.enable_expert_parallel:
        yield f"all2all_backend {args.all2all_backend} needs enable_expert_parallel"


def _formats(engine: ResolvedEngine) -> Iterator[str]:
    model, gpu = engine.model, engine.gpu
    found = f"{gpu.key} has {gpu.compute_capability}"
    for name in sorted({model.quantization.linear, model.quantization.experts}):
        least = _LEAST_CAPABILITY.get(name, 0.0)
        if gpu.compute_capability < least:
            yield f"{name} weights need compute capability {least}, {found}"
    if engine.args.kv_cache_dtype.startswith("fp8") and gpu.compute_capability < 8.0:
        yield f"an fp8 KV cache needs compute capability 8.0, {found}"
    split = 1 if engine.args.enable_expert_parallel else engine.expert_gpus
    if model.moe and model.quantization.experts == "fp8_block":
        width = model.moe.moe_intermediate_size // split
        if width % _FP8_BLOCK:
            yield (
                f"experts of width {width} per GPU are no multiple of a quantisation block "
                f"of {_FP8_BLOCK} (expert parallelism keeps them whole)"
            )
