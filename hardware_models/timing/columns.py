"""Seconds of ops for every number of new tokens at once, raised to the roofline."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.all_to_all import exchange_s
from dynosim.hardware_models.timing.chain import on_change, timing_source
from dynosim.hardware_models.timing.exchange import Exchange
from dynosim.hardware_models.timing.ops import AllReduce, Elementwise, Experts, Gemm, TokenOp
from dynosim.hardware_models.timing.source import OpSource, Priced
from dynosim.hardware_models.timing.tables import MissingTable
from dynosim.hardware_models.timing.weight_format import executed_format

COLUMN_STEP = 16384
"""Columns are computed up to a multiple of this many tokens, so that candidates that differ only
in their limits share them, and so that a step's time does not depend on those limits."""

ELEMENTWISE_SOURCE = OpSource(
    "elementwise",
    "roofline",
    f"bytes at {roofline.ELEMENTWISE_BANDWIDTH_SHARE:.0%} of HBM bandwidth after "
    f"{roofline.ELEMENTWISE_LAUNCH_S * 1e6:.0f} us",
)


def column(gpu: Gpu, backend: str, op: TokenOp, tp: int, length: int) -> Priced[FloatArray]:
    """Returns seconds of all ``op.count`` launches for 1 ... ``length`` tokens, shape (length,).

    ``length`` is best a :func:`column_length`, which equal shapes of other engines share.
    Raises :class:`MissingTable` where nothing prices it and UserError for an unknown dtype.
    """
    priced = _one(gpu, backend, _without_count(op), tp, length)
    return Priced(priced.value * op.count, priced.source)


def column_length(tokens: int) -> int:
    """Returns the length of the columns to compute where up to ``tokens`` are asked for."""
    return -(-tokens // COLUMN_STEP) * COLUMN_STEP


def _without_count(op: TokenOp) -> TokenOp:
    """Returns the op once and nameless: layers and models share equal shapes."""
    if isinstance(op, Gemm):
        return Gemm("", 1, op.n, op.k, op.dtype)
    if isinstance(op, Experts):
        return Experts(1, op.block, op.dtype)
    if isinstance(op, Exchange):
        return replace(op, count=1)
    return type(op)(1, op.bytes_per_token)


@lru_cache(maxsize=256)
def _one(gpu: Gpu, backend: str, op: TokenOp, tp: int, length: int) -> Priced[FloatArray]:
    tokens = np.arange(1, length + 1, dtype=np.float64)
    source = timing_source(gpu, backend)
    if isinstance(op, Elementwise):
        if gpu.own_tables:
            try:
                return _own_elementwise(gpu, backend, op, tokens)
            except MissingTable:
                pass
        moved = roofline.elementwise_s(gpu, tokens * op.bytes_per_token)
        return Priced(moved, ELEMENTWISE_SOURCE)
    if isinstance(op, Gemm):
        gemm = source.gemm_s(tokens, op.n, op.k, op.dtype)
        form = executed_format(op.dtype, gpu)
        return _raised(gemm, roofline.gemm_s(gpu, tokens, op.n, op.k, form))
    if isinstance(op, Experts):
        experts = source.moe_s(tokens, op.block, op.dtype)
        form = executed_format(op.dtype, gpu)
        return _raised(experts, roofline.moe_floor_s(gpu, tokens, op.block, form))
    if isinstance(op, Exchange):
        return exchange_s(gpu, backend, op, tokens)
    assert isinstance(op, AllReduce)
    return source.all_reduce_s(tokens * op.bytes_per_token, tp)


def _own_elementwise(
    gpu: Gpu, backend: str, op: Elementwise, tokens: FloatArray
) -> Priced[FloatArray]:
    from dynosim.hardware_models.timing.own_source import own_source

    return own_source(gpu, backend).elementwise_s(tokens, op.bytes_per_token)


def _raised(priced: Priced[FloatArray], floor: FloatArray) -> Priced[FloatArray]:
    return Priced(np.maximum(priced.value, floor), priced.source)


on_change(_one.cache_clear)
