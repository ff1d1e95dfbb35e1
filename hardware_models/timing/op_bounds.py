"""What binds each op at each number of tokens: arithmetic, memory, links, or being too small."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.chain import on_change
from dynosim.hardware_models.timing.columns import column, column_length
from dynosim.hardware_models.timing.exchange import Exchange
from dynosim.hardware_models.timing.ops import AllReduce, Elementwise, Experts, Gemm, TokenOp
from dynosim.hardware_models.timing.weight_format import executed_format

COMPUTE, MEMORY, LINKS, LAUNCH = range(4)
BOUNDS = ("compute", "memory bandwidth", "GPU links", "kernel launches")
"""What a kernel's time is bound by, in words."""

TOO_SMALL_SHARE = 1 / 3
"""A kernel that reaches less than this share of the nearer roof is bound by neither: its launch,
latency and tail are what it takes. Large kernels of the shipped tables reach 0.39 (prefill
attention) to 0.91 (GEMM) of theirs; see :mod:`.roofline_source`."""


@lru_cache(maxsize=64)
def seconds_by_bound(
    gpu: Gpu, backend: str, ops: tuple[TokenOp, ...], tp: int, length: int, ranks: int = 1
) -> FloatArray:
    """Returns seconds of all ops by what binds them, shape (4, length + 1), for 0 ... ``length``.

    With ``ranks``, each number of tokens stands for as many on every rank, which ops see together.
    """
    seconds = np.zeros((len(BOUNDS), length + 1))
    tokens = np.arange(1, length + 1, dtype=np.float64) * ranks
    for op in ops:
        priced = column(gpu, backend, op, tp, column_length(length * ranks)).value
        taken_s = priced[ranks - 1 :: ranks][:length]
        if isinstance(op, AllReduce | Exchange):
            seconds[LINKS, 1:] += taken_s
            continue
        roofs = _roofs(gpu, op, tokens)
        add_by_bound(seconds[:, 1:], taken_s, *roofs)
    return seconds


def add_by_bound(
    seconds: FloatArray, taken_s: FloatArray, compute_s: FloatArray, memory_s: FloatArray
) -> None:
    """Adds what kernels take to the row of ``seconds``, shape (4, n), that binds each of them."""
    is_small = np.maximum(compute_s, memory_s) < TOO_SMALL_SHARE * taken_s
    is_compute = ~is_small & (compute_s > memory_s)
    seconds[LAUNCH] += np.where(is_small, taken_s, 0.0)
    seconds[COMPUTE] += np.where(is_compute, taken_s, 0.0)
    seconds[MEMORY] += np.where(is_small | is_compute, 0.0, taken_s)


def _roofs(gpu: Gpu, op: TokenOp, tokens: FloatArray) -> roofline.Roofs:
    """Returns the roofs of all launches of an op that runs on one GPU."""
    if isinstance(op, Gemm):
        form = executed_format(op.dtype, gpu)
        compute_s, memory_s = roofline.gemm_roofs(gpu, tokens, op.n, op.k, form)
    elif isinstance(op, Experts):
        form = executed_format(op.dtype, gpu)
        compute_s, memory_s = roofline.moe_roofs(gpu, tokens, op.block, form)
    else:
        assert isinstance(op, Elementwise)
        memory_s = tokens * op.bytes_per_token / gpu.hbm_bandwidth_bytes_s
        compute_s = np.zeros_like(memory_s)
    return op.count * compute_s, op.count * memory_s


on_change(seconds_by_bound.cache_clear)
