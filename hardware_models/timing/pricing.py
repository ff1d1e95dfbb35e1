"""A resolved engine priced: arrays over tokens and logits, attention curves and grids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing import attention_table, roofline
from dynosim.hardware_models.timing.batch_grid import MeasuredMix
from dynosim.hardware_models.timing.chain import on_change, timing_source
from dynosim.hardware_models.timing.columns import column, column_length
from dynosim.hardware_models.timing.decode_grid import DecodeGrid
from dynosim.hardware_models.timing.decode_rows import DecodeRows
from dynosim.hardware_models.timing.exchange import Exchange
from dynosim.hardware_models.timing.interpolate import lower_envelope
from dynosim.hardware_models.timing.launches import dense_layers, num_in_graph
from dynosim.hardware_models.timing.mixed import MixedTiles
from dynosim.hardware_models.timing.mixed_source import mixed_attention, uneven_decode
from dynosim.hardware_models.timing.ops import (
    AllReduce,
    Attention,
    Gemm,
    ModelOps,
    State,
    TokenOp,
    decompose,
)
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve
from dynosim.hardware_models.timing.shapes import AttentionShape
from dynosim.hardware_models.timing.source import OpSource, Provenance
from dynosim.hardware_models.timing.tables import MissingTable
from dynosim.hardware_models.timing.weight_format import executed_format

SAW_TOOTH = 1.05
"""Dips of the step over new tokens up to this ratio count as noise and are levelled. Deeper ones
are kernel choices that engines really make (TensorRT-LLM's fp8_block GEMM is up to 1.39 times
slower at 129-256 tokens than at 257) and stay, at the price of a step that is not monotone."""

STATE_COMPUTE_SHARE = 0.3
"""Share of the bfloat16 peak that chunked linear-attention kernels are taken to reach."""


Skew = tuple[float, float]
"""What collectives in an engine take over those measured alone: a factor, and seconds each."""


@dataclass(frozen=True, eq=False)
class PricedAttention:
    """Attention of all layers: prefill curves with layer counts, decode rows, what is left over.

    ``tiles`` say how the two meet in one step (None: one after the other). ``by_parts`` are the
    projections of latent-attention blocks that were not measured whole.
    """

    prefill: tuple[tuple[int, PrefillCurve], ...]
    decode: DecodeRows
    tiles: MixedTiles | MeasuredMix | None
    by_parts: tuple[TokenOp, ...]
    sources: tuple[OpSource, ...]


@dataclass(frozen=True, eq=False)
class PricedEngine:
    """Everything a step costs on the GPUs of one replica.

    ``token_s`` has shape (tokens + 1,), by new tokens of the step, unpadded; ``logit_s``
    (sequences + 1,). Of data-parallel ranks that step together these are what each costs by
    itself, and ``joint_s``, shape (ranks x tokens + 1,), what all their tokens cost together.
    """

    token_s: FloatArray
    logit_s: FloatArray
    attention: PricedAttention
    prefill_state_s: float
    prefill_state_s_per_token: float
    sources: tuple[OpSource, ...]
    joint_s: FloatArray | None = None
    uneven_s: list[float] | None = None
    """By decoding sequences: seconds per token that the longest context has beyond the mean."""

    def balanced(self, ranks: int) -> PricedEngine:
        """Returns one rank's costs where all ``ranks`` always have equal batches."""
        if self.joint_s is None:
            return self
        return replace(self, token_s=self.token_s + self.joint_s[::ranks], joint_s=None)


def price(engine: ResolvedEngine) -> PricedEngine:
    """Returns the engine's costs; UserError where an op has no price at all."""
    try:
        return _price(engine, decompose(engine))
    except MissingTable as missing:
        raise UserError(
            f"no timing for {engine.model.name} on {engine.gpu.name} "
            f"with {engine.backend.name}: {missing}",
            hint="see `dynosim list gpus` and `dynosim list backends`",
        ) from missing


def _price(engine: ResolvedEngine, ops: ModelOps) -> PricedEngine:
    args, gpu, backend = engine.args, engine.gpu, engine.backend.name
    reads = tuple(
        engine.backend.decode_reads(op.shape.heads // op.shape.kv_heads) for op in ops.attention
    )
    attention = priced_attention(gpu, backend, ops.attention, ops.states, reads)
    max_seqs = args.max_num_seqs or engine.backend.max_num_seqs
    budget = args.max_num_batched_tokens or engine.backend.max_num_batched_tokens
    tp = args.tensor_parallel_size
    token_ops = (*ops.tokens, *attention.by_parts)
    skew = (engine.backend.communication_factor, engine.backend.collective_skew_s)
    tokens, named = _summed(gpu, backend, token_ops, tp, budget + max_seqs, skew)
    tokens[1:] += launch_gaps_s(engine, ops, token_ops) + _hand_over_s(engine, len(tokens))
    queries = engine.speculation.query_tokens if engine.speculation else 1
    most_logits = min(queries * max_seqs, budget + max_seqs)
    logits, named_logits = _summed(gpu, backend, ops.logits, tp, max(max_seqs, most_logits), skew)
    fixed, per_token = _prefill_state(gpu, ops.states)
    joint, named_joint = None, tuple[OpSource, ...]()
    if ops.joint:
        most = engine.ranks_in_step * (budget + max_seqs)
        joint, named_joint = _summed(gpu, backend, ops.joint, tp, most, skew)
    sources = dict.fromkeys((*named, *named_joint, *named_logits, *attention.sources))
    uneven = uneven_decode(gpu, backend, ops.attention)
    by_size = uneven.value.by_size(max_seqs) if uneven else None
    sources |= {uneven.source: None} if uneven else {}
    return PricedEngine(tokens, logits, attention, fixed, per_token, tuple(sources), joint, by_size)


def launch_gaps_s(engine: ResolvedEngine, ops: ModelOps, token_ops: tuple[TokenOp, ...]) -> float:
    """Returns seconds of a step between its kernels; ``token_ops`` are those over new tokens."""
    backend = engine.backend
    layers = dense_layers(num_in_graph(ops, token_ops), engine.args.tensor_parallel_size)
    return backend.step_gap_s + backend.layer_launch_s * layers


@lru_cache(maxsize=128)
def _levelled(
    gpu: Gpu, backend: str, ops: tuple[TokenOp, ...], tp: int, length: int, skew: Skew
) -> tuple[FloatArray, tuple[OpSource, ...]]:
    """Returns seconds of all ops for 1 ... ``length`` tokens without small dips, and sources."""
    priced = [column(gpu, backend, op, tp, length) for op in ops]
    seconds = np.sum([_skewed(op, p.value, skew) for op, p in zip(ops, priced, strict=True)], 0)
    return _without_noise(seconds), tuple(dict.fromkeys(p.source for p in priced))


def _skewed(op: TokenOp, seconds: FloatArray, skew: Skew) -> FloatArray:
    """Returns an op's seconds, for collectives with the wait for the GPU that comes last."""
    if not isinstance(op, AllReduce | Exchange):
        return seconds
    factor, wait_s = skew
    return seconds * factor + op.count * wait_s


def _summed(
    gpu: Gpu, backend: str, ops: tuple[TokenOp, ...], tp: int, length: int, skew: Skew
) -> tuple[FloatArray, tuple[OpSource, ...]]:
    """Returns seconds of all ops for 0 ... ``length`` tokens (none cost nothing), and sources."""
    seconds, sources = _levelled(gpu, backend, ops, tp, column_length(length), skew)
    return np.concatenate((np.zeros(1), seconds[:length])), sources


def _without_noise(seconds: FloatArray) -> FloatArray:
    """Returns the curve made to rise wherever that changes it by less than :data:`SAW_TOOTH`."""
    rising = lower_envelope(seconds)
    return np.where(seconds <= SAW_TOOTH * rising, rising, seconds)


def _hand_over_s(engine: ResolvedEngine, length: int) -> FloatArray:
    """Returns seconds of passing activations between pipeline stages, shape (length - 1,).

    One batch walks through its stages in turn; :mod:`.pipeline` has several of them in flight.
    """
    hops = engine.args.pipeline_parallel_size - 1
    tokens = np.arange(1, length, dtype=np.float64)
    link = roofline.link_bytes_s(engine.gpu, engine.args.gpus_per_replica)
    moved = tokens * engine.model.hidden_size * 2.0 / link
    return np.asarray(hops * (roofline.POINT_TO_POINT_S + moved), dtype=np.float64)


def _prefill_state(gpu: Gpu, states: tuple[State, ...]) -> tuple[float, float]:
    """Returns seconds per chunk and per token of carrying constant states through a prefill."""
    rate = roofline.peak_flop_s(gpu, "bfloat16") * STATE_COMPUTE_SHARE
    fixed = sum(s.count * state_pass_s(gpu, s, 1) for s in states)
    return fixed, sum(s.count * s.flop_per_token / rate for s in states)


def state_pass_s(gpu: Gpu, state: State, sequences: int) -> float:
    """Returns seconds of reading and writing one layer's state for each sequence."""
    return float(roofline.elementwise_s(gpu, np.array(sequences * state.state_bytes)))


@lru_cache(maxsize=128)
def priced_attention(
    gpu: Gpu,
    backend: str,
    attention: tuple[Attention, ...],
    states: tuple[State, ...],
    reads: tuple[float, ...],
) -> PricedAttention:
    """Returns attention priced; shared by all candidates with the same shapes.

    ``reads`` say for each of ``attention`` how often decode reads a KV head.
    """
    prefill, decode, sources = [], [], []
    by_parts: list[TokenOp] = []
    for op, num_reads in zip(attention, reads, strict=True):
        parts, curve, grid, named = _one(gpu, backend, op)
        if num_reads != 1.0:
            grid = grid.read_again(num_reads)
        inside = () if parts else op.block
        prefill.append((op.count, _floored_curve(curve, op.shape, inside, gpu)))
        decode.append((op.count, _floored_grid(grid, op.shape, inside, gpu)))
        by_parts += parts
        sources += named
    per_state = [(s.count, s) for s in states]
    rows = DecodeRows(
        tuple(decode), lambda n: sum(count * state_pass_s(gpu, s, n) for count, s in per_state)
    )
    curves = tuple(curve for _, curve in prefill)
    mixed = mixed_attention(gpu, backend, attention, curves, tuple(sources))
    sources += [mixed.source] if mixed else []
    return PricedAttention(
        prefill=tuple(prefill),
        decode=rows,
        tiles=mixed.value if mixed else None,
        by_parts=tuple(by_parts),
        sources=tuple(dict.fromkeys(sources)),
    )


def _one(
    gpu: Gpu, backend: str, op: Attention
) -> tuple[tuple[TokenOp, ...], PrefillCurve, DecodeGrid, list[OpSource]]:
    """Returns the projections still to price, the curve, the grid and where they come from."""
    source = timing_source(gpu, backend)
    if op.shape.kv_dtype == "int8":
        prefill = source.prefill_attention(replace(op.shape, kv_dtype="bfloat16"))
        decode = source.decode_attention(replace(op.shape, kv_dtype="fp8"))
        named = [_stands_in(prefill.source, "16-bit"), _stands_in(decode.source, "fp8")]
        return op.block, prefill.value, decode.value, named
    if op.block:
        try:
            whole = source.mla_block(op.shape, op.block[0].dtype)
            return (), *whole.value, [whole.source]
        except MissingTable:
            pass
    prefill, decode = source.prefill_attention(op.shape), source.decode_attention(op.shape)
    return op.block, prefill.value, decode.value, [prefill.source, decode.source]


def _stands_in(source: OpSource, cache: str) -> OpSource:
    """Returns the source of attention over another cache that stands in for one of int8.

    No int8 cache was measured. Kernels dequantise it on the fly (TensorRT-LLM, "Numerical
    Precision", 2026-02): a prompt then computes as with 16 bits, and decode, which waits for
    memory, reads as many bytes as with fp8. The conversion itself is not added.
    """
    kind: Provenance = "transferred" if source.source == "measured" else source.source
    detail = f"{source.detail}; over a {cache} cache in place of int8"
    return OpSource(source.name, kind, detail)


def _floored_curve(
    curve: PrefillCurve, shape: AttentionShape, inside: tuple[Gemm, ...], gpu: Gpu
) -> PrefillCurve:
    """Returns the curve with what no kernel can beat; ``inside`` are projections it covers."""
    projections = [
        2.0 * g.n * g.k / roofline.peak_flop_s(gpu, executed_format(g.dtype, gpu).compute)
        for g in inside
    ]
    return replace(
        curve,
        flop_s_per_pair=roofline.prefill_s_per_pair(gpu, shape),
        flop_s_per_token=sum(projections),
        kv_s_per_token=shape.kv_bytes_per_token / gpu.hbm_bandwidth_bytes_s,
    )


def _floored_grid(
    grid: DecodeGrid, shape: AttentionShape, inside: tuple[Gemm, ...], gpu: Gpu
) -> DecodeGrid:
    """Returns the grid raised to what attention and the projections inside it take at best."""

    def roof(n: FloatArray, context: FloatArray) -> FloatArray:
        seconds = attention_table.decode_roof(gpu, shape)(n, context)
        for g in inside:
            seconds = seconds + roofline.gemm_s(gpu, n, g.n, g.k, executed_format(g.dtype, gpu))
        return seconds

    return grid.floored(roof)


on_change(_levelled.cache_clear)
on_change(priced_attention.cache_clear)
