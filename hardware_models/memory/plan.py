"""The memory plan: what each part takes, how large the KV cache is, whether the engine starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.memory.activation import activation_bytes, logits_bytes
from dynosim.hardware_models.memory.constants import MemoryConstants, memory_constants
from dynosim.hardware_models.memory.draft import draft_kv_bytes_per_token, draft_weight_bytes
from dynosim.hardware_models.memory.kv_cache import KvLayout, kv_bytes_per_token, kv_layout
from dynosim.hardware_models.memory.rules import shape_notes, violated_rule
from dynosim.hardware_models.memory.stages import Stage, pipeline_stages
from dynosim.hardware_models.memory.weights import Cuts, stage_weight_bytes
from dynosim.hardware_models.resolve import ResolvedEngine

_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Where the memory of one GPU goes; that of the tightest pipeline stage of one
    data-parallel rank.

    ``budget_bytes`` is what the engine may use, ``kv_cache_bytes`` what it leaves for context.
    ``kv_cache_tokens`` is the number vLLM prints, per engine and not per GPU: with several kinds
    of layers it is derived from ``max_concurrency`` and no capacity. ``num_gpu_blocks`` are
    blocks of ``block_size`` tokens that hold ``kv_cache_tokens``. ``cuda_graph_bytes`` lie
    inside the budget only where ``cuda_graphs_deducted``. Where not ``feasible``, ``reason``
    says why and ``hint`` which single changes would fit.
    """

    feasible: bool
    reason: str = ""
    hint: str = ""
    total_bytes: int
    budget_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    cuda_graph_bytes: int
    cuda_graphs_deducted: bool
    kv_cache_bytes: int
    kv_bytes_per_token: int
    num_gpu_blocks: int
    block_size: int
    kv_cache_tokens: int
    max_concurrency: float
    max_model_len: int
    calibrated_version: str
    notes: tuple[str, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """Returns the two lines that vLLM prints at start."""
        return (
            f"GPU KV cache size: {self.kv_cache_tokens:,} tokens",
            f"Maximum concurrency for {self.max_model_len:,} tokens per request: "
            f"{self.max_concurrency:.2f}x",
        )

    def breakdown(self) -> tuple[tuple[str, int], ...]:
        """Returns (part, bytes per GPU), from the whole device down to the KV cache."""
        return (
            ("device", self.total_bytes),
            ("budget", self.budget_bytes),
            ("weights", self.weights_bytes),
            ("activations", self.activation_bytes),
            ("non-torch", self.non_torch_bytes),
            ("CUDA graphs", self.cuda_graph_bytes),
            ("KV cache", self.kv_cache_bytes),
        )


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Bytes of one rank of one stage, before the KV cache."""

    weights: int
    activation: int
    non_torch: int
    graphs: int
    layout: KvLayout
    per_token: int


@lru_cache(maxsize=4096)
def plan_memory(engine: ResolvedEngine) -> MemoryPlan:
    """Returns the memory plan of one engine replica.

    An engine that would not start is a plan with ``feasible`` False, never an exception.
    """
    from dynosim.hardware_models.memory.hints import fitting_changes

    plan = plan_without_hint(engine)
    return plan if plan.feasible else replace(plan, hint=fitting_changes(engine, plan))


def plan_without_hint(engine: ResolvedEngine) -> MemoryPlan:
    """Returns :func:`plan_memory` without looking for changes that would fit."""
    args, constants = engine.args, memory_constants(engine.backend.name, engine.backend.version)
    if args.pipeline_parallel_size > engine.model.num_layers:
        engine = replace(engine, args=replace(args, pipeline_parallel_size=1))
    stages = pipeline_stages(engine.model, engine.args.pipeline_parallel_size)
    candidates = [
        (parts, _pool_bytes(engine, parts, constants))
        for parts in (_parts(engine, stage, constants) for stage in stages)
    ]
    parts, pool = min(candidates, key=lambda found: _blocks(found[0].layout, found[1]))
    return _with_pool(replace(engine, args=args), parts, pool, constants)


def _parts(engine: ResolvedEngine, stage: Stage, constants: MemoryConstants) -> _Parts:
    cuts = Cuts(engine.args.tensor_parallel_size, engine.expert_gpus, engine.mlp_gpus)
    weights = stage_weight_bytes(engine.model, stage, cuts, constants.mxfp4_intermediate_multiple)
    weights += draft_weight_bytes(engine, constants.mxfp4_intermediate_multiple)
    layers = sum(count for _, count in stage.layers)
    layout, draft_kv = kv_layout(engine, stage), draft_kv_bytes_per_token(engine)
    return _Parts(
        weights=int(weights),
        activation=activation_bytes(engine, stage, constants),
        non_torch=_non_torch_bytes(engine, constants),
        graphs=_graph_bytes(engine, layers, constants),
        layout=replace(layout, draft_page_bytes=draft_kv * layout.block_size),
        per_token=kv_bytes_per_token(engine, stage) + draft_kv,
    )


def _graph_bytes(engine: ResolvedEngine, layers: int, constants: MemoryConstants) -> int:
    if engine.args.enforce_eager:
        return 0
    routed = constants.graph_moe_bytes if engine.model.is_moe else 0
    return constants.graph_base_bytes + layers * constants.graph_bytes_per_layer + routed


def _non_torch_bytes(engine: ResolvedEngine, constants: MemoryConstants) -> int:
    """NCCL and all-reduce buffers mostly: large where ranks of a layer talk over NVLink."""
    if engine.expert_gpus > 1:
        if engine.gpu.nvlink_bandwidth_bytes_s is None:
            return constants.non_torch_pcie_bytes
        return constants.non_torch_tensor_parallel_bytes
    if engine.args.pipeline_parallel_size > 1:
        return constants.non_torch_pipeline_bytes
    return constants.non_torch_bytes


def _context_bytes(engine: ResolvedEngine, constants: MemoryConstants) -> int:
    alone = engine.expert_gpus * engine.args.pipeline_parallel_size == 1
    return constants.context_bytes if alone else constants.context_parallel_bytes


def _budget_bytes(engine: ResolvedEngine, parts: _Parts, constants: MemoryConstants) -> int:
    """What weights, activations and pool may take, by the backend's reading of its argument."""
    total, share = engine.gpu.memory_bytes, engine.args.gpu_memory_utilization or 0.0
    free = total - _context_bytes(engine, constants)
    if constants.pool == "share_of_free_less_weights":
        return int(share * free)
    if constants.pool == "share_of_what_is_left":
        loaded = parts.weights + parts.activation + parts.non_torch
        return loaded + int(share * max(0, free - loaded))
    return int(share * total)


def _pool_bytes(engine: ResolvedEngine, parts: _Parts, constants: MemoryConstants) -> int:
    """Bytes left for the KV cache on one GPU; negative where the rest exceeds the budget."""
    if engine.args.kv_cache_memory_bytes is not None:
        return engine.args.kv_cache_memory_bytes
    budget = _budget_bytes(engine, parts, constants)
    if constants.pool == "share_of_free_less_weights":
        return budget - parts.weights
    graphs = parts.graphs if constants.graphs_deducted else 0
    return budget - parts.weights - parts.activation - parts.non_torch - graphs


def _blocks(layout: KvLayout, pool_bytes: int) -> int:
    return max(0, pool_bytes) // layout.block_bytes if layout.groups else 2**31


def _with_pool(
    engine: ResolvedEngine, parts: _Parts, pool: int, constants: MemoryConstants
) -> MemoryPlan:
    args, layout = engine.args, parts.layout
    longest = args.max_model_len or engine.model.max_position_embeddings
    blocks = _blocks(layout, pool)
    if args.num_gpu_blocks_override is not None:
        blocks = args.num_gpu_blocks_override
    pages = layout.pages_per_request(longest, args.max_num_batched_tokens or 1)
    concurrency = blocks / pages if pages else float(blocks)
    tokens = _printed_tokens(layout, blocks, concurrency, longest, constants)
    plan = MemoryPlan(
        feasible=True,
        total_bytes=engine.gpu.memory_bytes,
        budget_bytes=_budget_bytes(engine, parts, constants),
        weights_bytes=parts.weights,
        activation_bytes=parts.activation,
        non_torch_bytes=parts.non_torch,
        cuda_graph_bytes=parts.graphs,
        cuda_graphs_deducted=constants.graphs_deducted,
        kv_cache_bytes=max(0, pool),
        kv_bytes_per_token=parts.per_token,
        num_gpu_blocks=tokens // engine.block_size,
        block_size=engine.block_size,
        kv_cache_tokens=tokens,
        max_concurrency=concurrency,
        max_model_len=longest,
        calibrated_version=constants.measured_version,
        notes=(*shape_notes(engine), *_rank_notes(args, tokens)),
    )
    reason = _refusal(engine, plan, pool, pages, blocks, constants)
    return replace(plan, feasible=not reason, reason=reason)


def _rank_notes(args: EngineArgs, tokens: int) -> Iterator[str]:
    ranks = args.data_parallel_size
    if ranks > 1:
        yield f"each of {ranks} data-parallel ranks has as much: {ranks * tokens:,} KV tokens"


def _printed_tokens(
    layout: KvLayout, blocks: int, concurrency: float, longest: int, constants: MemoryConstants
) -> int:
    """The pool size in tokens as vLLM prints it; for one kind of layers both rules agree."""
    if len(layout.groups) <= 1:
        return blocks * layout.block_size
    if constants.tokens_from_concurrency:
        return int(concurrency * longest)
    return blocks // len(layout.groups) * layout.block_size


def _refusal(
    engine: ResolvedEngine,
    plan: MemoryPlan,
    pool: int,
    pages: int,
    blocks: int,
    constants: MemoryConstants,
) -> str:
    """Why the engine would not start, in the order in which it would find out; else empty."""
    rule = violated_rule(engine)
    if rule:
        return rule
    free = plan.total_bytes - _context_bytes(engine, constants)
    if plan.budget_bytes > free:
        return (
            f"gpu_memory_utilization {engine.args.gpu_memory_utilization:g} asks for "
            f"{_gib(plan.budget_bytes)}, but only {_gib(free)} are free at start"
        )
    needed = plan.budget_bytes - pool
    if pool <= 0:
        return (
            f"no memory for the KV cache: weights {_gib(plan.weights_bytes)} and all else take "
            f"{_gib(needed)} of the budget of {_gib(plan.budget_bytes)}"
        )
    if blocks < pages:
        return (
            f"KV cache of {plan.kv_cache_tokens:,} tokens ({_gib(pool)}) is smaller than one "
            f"request of max_model_len {plan.max_model_len:,}"
        )
    return _warm_up_refusal(engine, plan, free, constants)


def _warm_up_refusal(
    engine: ResolvedEngine, plan: MemoryPlan, free: int, constants: MemoryConstants
) -> str:
    """vLLM's last step at start samples for ``max_num_seqs``, with pool and graphs in place."""
    if constants.pool != "share_of_device_less_all":
        return ""
    taken = plan.weights_bytes + plan.non_torch_bytes + plan.kv_cache_bytes + plan.cuda_graph_bytes
    if engine.model.quantization.experts == "mxfp4":
        tokens = engine.args.max_num_batched_tokens or 1
        taken += tokens * constants.mxfp4_warm_up_bytes_per_token
    sampling = logits_bytes(engine, constants)
    if taken + sampling <= free:
        return ""
    if taken > free:
        return (
            f"out of memory when CUDA graphs are captured: {_gib(plan.cuda_graph_bytes)} wanted, "
            f"{_gib(max(0, free - taken + plan.cuda_graph_bytes))} left beside the KV cache"
        )
    return (
        f"out of memory when the sampler warms up with {engine.args.max_num_seqs} sequences: "
        f"{_gib(sampling)} wanted, {_gib(free - taken)} left beside the KV cache"
    )


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f} GiB"
