"""Decode attention where each sequence has several queries: the same KV read, more arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.speculation import figure
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.decode_rows import DecodeRows
from dynosim.hardware_models.timing.ops import Attention, Gemm
from dynosim.hardware_models.timing.pricing import PricedAttention
from dynosim.hardware_models.timing.shapes import AttentionShape
from dynosim.hardware_models.timing.weight_format import executed_format

GridMap = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


def verification_rows(
    gpu: Gpu, attention: PricedAttention, ops: tuple[Attention, ...], queries: int
) -> DecodeRows:
    """Returns decode rows for ``queries`` tokens of each sequence; for 1, rows that are equal.

    Keys and values are read once, so that a step takes as long as a plain one until arithmetic does
    not hide behind that any more: scores of all queries, in tiles of whole rows, at the rate that
    such kernels reach. Projections that were measured with attention grow with their tokens.
    A constant state is read once and written after every query.
    """
    plain = attention.decode
    if queries == 1:
        return plain
    maps = [_verified(gpu, op.shape, _inside(op, attention), queries) for op in ops]
    passes = (1 + queries) / 2.0
    return plain.mapped(maps, lambda n: passes * plain.constant_s(n))


def _inside(op: Attention, attention: PricedAttention) -> tuple[Gemm, ...]:
    """Returns the projections that were measured together with the attention."""
    return () if set(op.block) <= set(attention.by_parts) else op.block


def _verified(gpu: Gpu, shape: AttentionShape, inside: tuple[Gemm, ...], queries: int) -> GridMap:
    window = np.inf if shape.window is None else float(shape.window)
    rate = figure("attention_compute_share") * roofline.peak_flop_s(gpu, shape.compute)
    per_pair_s = flop_per_pair(shape, queries) / rate

    def seconds(plain: FloatArray, n: FloatArray, context: FloatArray) -> FloatArray:
        found = np.maximum(plain, n * np.minimum(context, window) * per_pair_s)
        for g in inside:
            form = executed_format(g.dtype, gpu)
            found = found + roofline.gemm_s(gpu, n * queries, g.n, g.k, form)
            found = found - roofline.gemm_s(gpu, n, g.n, g.k, form)
        return found

    return seconds


def flop_per_pair(shape: AttentionShape, queries: int) -> float:
    """Returns FLOP per sequence and token of context, rows of tiles that stay empty included."""
    tile = figure("attention_tile_rows")
    if shape.kind == "mla":
        # All heads share the latent.
        shared, heads, width = 1, shape.heads, shape.latent_dim + shape.latent_value_dim
    else:
        shared, heads = shape.kv_heads, shape.heads // shape.kv_heads
        width = shape.qk_dim + shape.v_dim
    rows = float(np.ceil(queries * heads / tile) * tile)
    return 2.0 * shared * rows * width
