"""Which ops a model launches per engine step on one GPU of its tensor-parallel group.

Counted per layer, the same for the three backends, since all of them fuse alike: two fused
residual-add-and-norms, one fused rotary embedding and KV write, one fused activation, the
projections, attention, and one all-reduce behind attention and one behind the MLP. Who quantises
the input of a projection says its weight format (:mod:`.quantise`). Not priced: bias adds, which
those kernels do. With expert parallelism but no data parallelism every GPU sees all tokens and the
sum is an all-reduce; data-parallel ranks exchange tokens with each other (:mod:`.exchange`), and
what they do together counts the tokens of all.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.llm.architecture import LayerGroup, LlmArchitecture
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.exchange import Exchange, exchange_of
from dynosim.hardware_models.timing.quantise import Before, gemm_format
from dynosim.hardware_models.timing.shapes import AttentionShape, KvDtype, MoeBlock

ACTIVATION_BYTES = 2.0
NORM_PASSES = 4
"""Hidden vectors that a fused add-and-norm moves per token: two in, two out."""
SQUARES_BYTES = 8.0
"""Two sums in float32."""
LOGIT_BYTES = 4.0
SAMPLER_BYTES_PER_LOGIT = 12.0
"""Logits converted to float32 and passed over three times (penalties, softmax, draw)."""


@dataclass(frozen=True)
class Gemm:
    """``count`` products of new tokens with an (k x n) weight shard; ``name`` for messages."""

    name: str
    count: int
    n: int
    k: int
    dtype: str


@dataclass(frozen=True)
class Experts:
    """``count`` layers of routed experts."""

    count: int
    block: MoeBlock
    dtype: str


@dataclass(frozen=True)
class Elementwise:
    """``count`` memory-bound kernels that move ``bytes_per_token``."""

    count: int
    bytes_per_token: float


@dataclass(frozen=True)
class AllReduce:
    """``count`` sums over the tensor-parallel group of ``bytes_per_token``."""

    count: int
    bytes_per_token: float


@dataclass(frozen=True)
class Attention:
    """``count`` layers of one attention shape; ``block`` are the projections around it."""

    count: int
    shape: AttentionShape
    block: tuple[Gemm, ...] = ()


@dataclass(frozen=True)
class State:
    """``count`` layers whose constant state is read and written once per sequence and step."""

    count: int
    state_bytes: float
    flop_per_token: float


TokenOp = Gemm | Experts | Elementwise | AllReduce | Exchange


@dataclass(frozen=True)
class ModelOps:
    """Ops by what they scale with: new tokens, sampled logits, attention work, sequences.

    ``joint`` ones scale with the new tokens of all data-parallel ranks that step together, the
    others with those of one rank.
    """

    tokens: tuple[TokenOp, ...]
    logits: tuple[TokenOp, ...]
    attention: tuple[Attention, ...]
    states: tuple[State, ...]
    num_layers: int
    joint: tuple[TokenOp, ...] = ()


def decompose(engine: ResolvedEngine) -> ModelOps:
    """Returns the ops of one pass through all layers, whatever pipeline stage they sit in."""
    model, tp = engine.model, engine.args.tensor_parallel_size
    tokens: list[TokenOp] = [Elementwise(1, 2 * ACTIVATION_BYTES * model.hidden_size)]
    tokens += _all_reduce(model, tp, 1)
    attention: list[Attention] = []
    states: list[State] = []
    joint: list[TokenOp] = []
    for group in model.layers:
        if group.mixer == "attention":
            attention.append(_gqa(engine, group))
            tokens += _projections(engine, group)
        elif group.mixer == "mla":
            attention.append(_mla(engine, group))
        elif group.mixer != "none":
            state, projection = _state(engine, group)
            states.append(state)
            tokens.append(projection)
        own, shared = _split(engine, group, _mlp(engine, group))
        tokens += _layer_glue(model, group, tp, sums_mlp=bool(own) or not shared)
        tokens += own
        joint += shared
    return ModelOps(
        tuple(tokens),
        _logits(engine),
        tuple(attention),
        tuple(states),
        model.num_layers,
        tuple(joint),
    )


def _split(
    engine: ResolvedEngine, group: LayerGroup, mlp: list[TokenOp]
) -> tuple[list[TokenOp], list[TokenOp]]:
    """Returns what of a group's MLPs each data-parallel rank runs by itself, and what they share.

    They share experts, or all of it where the backend gathers tokens before every MLP; for that
    they exchange tokens.
    """
    if engine.ranks_in_step == 1 or not mlp:
        return mlp, []
    if engine.gathers_mlp:
        return [], [*mlp, exchange_of(engine, group)]
    if not group.is_moe:
        return mlp, []
    own: list[TokenOp] = [op for op in mlp if not isinstance(op, Experts)]
    shared: list[TokenOp] = [op for op in mlp if isinstance(op, Experts)]
    return own, [*shared, exchange_of(engine, group)]


def kv_dtype(engine: ResolvedEngine) -> KvDtype:
    """Returns the dtype that attention reads."""
    asked: str = engine.args.kv_cache_dtype
    if asked == "auto":
        asked = engine.model.quantization.kv_cache
    if asked.startswith("int8"):
        return "int8"
    return "fp8" if asked.startswith("fp8") else "bfloat16"


def shard(width: int, parts: int) -> int:
    """Returns the largest shard of ``width`` split over ``parts`` GPUs; at least 1."""
    return max(1, -(-width // parts))


def _attention_dtype(engine: ResolvedEngine, before: Before) -> str:
    q = engine.model.quantization
    if not q.quantizes_attention:
        return engine.model.base_dtype
    return gemm_format(q, q.linear, engine.backend.name, before)


def _gqa(engine: ResolvedEngine, group: LayerGroup) -> Attention:
    model, tp = engine.model, engine.args.tensor_parallel_size
    shape = AttentionShape(
        heads=shard(model.num_attention_heads, tp),
        kv_heads=shard(model.num_key_value_heads, tp),
        qk_dim=model.head_dim,
        v_dim=model.head_dim,
        kv_dtype=kv_dtype(engine),
        window=group.window,
    )
    return Attention(group.count, shape)


def _projections(engine: ResolvedEngine, group: LayerGroup) -> list[TokenOp]:
    model, tp = engine.model, engine.args.tensor_parallel_size
    q = shard(model.num_attention_heads, tp) * model.head_dim
    kv = shard(model.num_key_value_heads, tp) * model.head_dim
    qkv, o = _attention_dtype(engine, "norm"), _attention_dtype(engine, "attention")
    queries = 2 * q if model.attention_output_gate else q
    ops: list[TokenOp] = [
        Gemm("qkv", group.count, queries + 2 * kv, model.hidden_size, qkv),
        Gemm("o", group.count, model.hidden_size, q, o),
        # Rotary embedding and KV write: queries and keys read and written, values too.
        Elementwise(group.count, 2 * ACTIVATION_BYTES * (q + 2 * kv)),
    ]
    return ops + _query_key_norms(engine, group.count, q + kv)


def _query_key_norms(engine: ResolvedEngine, count: int, width: int) -> list[TokenOp]:
    """Returns the norms of queries and keys; over all heads their squares are summed over GPUs."""
    model, kernels = engine.model, engine.backend.query_key_norm_kernels
    if model.query_key_norm == "none" or not kernels:
        return []
    norms = Elementwise(kernels * count, 2 * ACTIVATION_BYTES * width / kernels)
    if model.query_key_norm == "whole" and engine.args.tensor_parallel_size > 1:
        return [norms, AllReduce(count, SQUARES_BYTES)]
    return [norms]


def _mla(engine: ResolvedEngine, group: LayerGroup) -> Attention:
    model, tp = engine.model, engine.args.tensor_parallel_size
    mla = model.mla
    if mla is None:
        raise ValueError(f"{model.name}: latent-attention layers without their dimensions")
    heads, qk_dim = (
        shard(model.num_attention_heads, tp),
        mla.qk_nope_head_dim + mla.qk_rope_head_dim,
    )
    shape = AttentionShape(
        heads=heads,
        kv_heads=heads,
        qk_dim=qk_dim,
        v_dim=mla.v_head_dim,
        kv_dtype=kv_dtype(engine),
        kind="mla",
        latent_dim=mla.latent_dim,
        latent_value_dim=mla.kv_lora_rank,
    )
    dtype, hidden, count = _attention_dtype(engine, "norm"), model.hidden_size, group.count
    q_rank = mla.q_lora_rank
    down = mla.latent_dim + (q_rank or heads * qk_dim)
    block = [Gemm("mla down", count, down, hidden, dtype)]
    if q_rank:
        block.append(Gemm("mla q up", count, heads * qk_dim, q_rank, dtype))
    # Decode multiplies by the same matrix in its absorbed form: equal weights, equal FLOP.
    kv_up = heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    block.append(Gemm("mla kv up", count, kv_up, mla.kv_lora_rank, dtype))
    o_dtype = _attention_dtype(engine, "attention")
    block.append(Gemm("o", count, hidden, heads * mla.v_head_dim, o_dtype))
    return Attention(count, shape, tuple(block))


def _state(engine: ResolvedEngine, group: LayerGroup) -> tuple[State, Gemm]:
    model, tp = engine.model, engine.args.tensor_parallel_size
    state = model.linear_state
    if state is None:
        raise ValueError(f"{model.name}: {group.mixer} layers without the size of their state")
    state_bytes = state.state_elements * state.state_dtype_bytes + state.conv_elements * 2
    # Per token the state is decayed, updated by an outer product and read: three passes.
    flop = 6.0 * state.state_elements / tp
    width = shard(round(state.parameters / model.hidden_size), tp)
    projection = Gemm(
        f"{group.mixer} projections",
        group.count,
        width,
        model.hidden_size,
        _attention_dtype(engine, "norm"),
    )
    return State(group.count, 2.0 * state_bytes / tp, flop), projection


def _layer_glue(
    model: LlmArchitecture, group: LayerGroup, tp: int, *, sums_mlp: bool
) -> list[TokenOp]:
    mixers, mlps = int(group.mixer != "none"), int(group.is_moe or group.intermediate_size > 0)
    passes = NORM_PASSES * ACTIVATION_BYTES * model.hidden_size
    norm = Elementwise(group.count * (mixers + mlps), passes)
    sums = mixers + mlps * sums_mlp
    if model.parallel_blocks:
        sums = min(sums, 1)
    return [norm, *_all_reduce(model, tp, group.count * sums)]


def _all_reduce(model: LlmArchitecture, tp: int, count: int) -> list[TokenOp]:
    return [AllReduce(count, ACTIVATION_BYTES * model.hidden_size)] if tp > 1 else []


def _mlp(engine: ResolvedEngine, group: LayerGroup) -> list[TokenOp]:
    model, gpus = engine.model, engine.expert_gpus
    if not group.is_moe:
        return _dense_mlp(engine, group.count, group.intermediate_size)
    moe = model.moe
    if moe is None:
        raise ValueError(f"{model.name}: expert layers without their dimensions")
    by_expert = engine.args.enable_expert_parallel
    block = MoeBlock(
        hidden_size=model.hidden_size,
        inter_size=moe.moe_intermediate_size,
        topk=moe.experts_per_token,
        num_experts=moe.num_experts,
        moe_tp=1 if by_expert else gpus,
        moe_ep=gpus if by_expert else 1,
        gated=model.gated_mlp,
        load=engine.args.expert_distribution,
    )
    router = Gemm("router", group.count, moe.num_experts, model.hidden_size, model.base_dtype)
    experts = Experts(group.count, block, _expert_format(engine))
    # Which experts a token goes to, and the sum of shared and routed ones.
    choice = Elementwise(group.count, LOGIT_BYTES * moe.num_experts)
    shared = _dense_mlp(engine, group.count, moe.shared_intermediate_size)
    if shared:
        shared.append(Elementwise(group.count, 3 * ACTIVATION_BYTES * model.hidden_size))
    return [router, choice, experts, *shared]


def _expert_format(engine: ResolvedEngine) -> str:
    """Returns the experts' format, by the kernels asked for where there is a choice."""
    dtype, capability = engine.model.quantization.experts, engine.gpu.compute_capability
    has_choice = dtype == "fp8_block" and 10.0 <= capability < 12.0
    return f"{dtype}_trtllm_gen" if has_choice and engine.args.moe_backend else dtype


def _dense_mlp(engine: ResolvedEngine, count: int, width: int) -> list[TokenOp]:
    if not width:
        return []
    model, q, backend = engine.model, engine.model.quantization, engine.backend.name
    inner = shard(width, engine.mlp_gpus)
    up = 2 * inner if model.gated_mlp else inner
    return [
        Gemm("mlp up", count, up, model.hidden_size, gemm_format(q, q.linear, backend, "norm")),
        Elementwise(count, ACTIVATION_BYTES * (up + inner)),
        Gemm(
            *("mlp down", count, model.hidden_size, inner),
            gemm_format(q, q.linear, backend, "activation"),
        ),
    ]


def _logits(engine: ResolvedEngine) -> tuple[TokenOp, ...]:
    model, tp = engine.model, engine.args.tensor_parallel_size
    drawn = SAMPLER_BYTES_PER_LOGIT
    if engine.args.sampling == "top_p":
        drawn = engine.backend.top_p_bytes_per_logit or drawn
    q = model.quantization
    dtype = q.linear if q.quantizes_lm_head else model.base_dtype
    ops: list[TokenOp] = [
        Elementwise(1, NORM_PASSES * ACTIVATION_BYTES * model.hidden_size),
        Gemm("lm head", 1, shard(model.vocab_size, tp), model.hidden_size, dtype),
        Elementwise(1, drawn * model.vocab_size),
    ]
    if tp > 1:
        # Logits are gathered, not summed: half of an all-reduce's traffic.
        ops.append(AllReduce(1, 0.5 * ACTIVATION_BYTES * model.vocab_size))
    return tuple(ops)
