"""What an op must at least do: the roofline bound that no sound measurement can beat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynosim.hardware_models.build_data.rows import Rows
from dynosim.hardware_models.build_data.system import System

Array = NDArray[Any]


@dataclass(frozen=True)
class Format:
    """A storage format: bytes an element takes, scales included, and the units it multiplies on."""

    weight_bytes: float
    input_bytes: float
    units: str


FORMATS: Mapping[str, Format] = {
    "bfloat16": Format(2, 2, "bfloat16"),
    "fp8": Format(1, 1, "fp8"),
    "fp8_block": Format(1, 1, "fp8"),
    "nvfp4": Format(0.5, 0.5, "fp4"),
    "int8_wo": Format(1, 2, "bfloat16"),
    "int4_wo": Format(0.5, 2, "bfloat16"),
    "sq": Format(1, 1, "int8"),
    "w4a16_mxfp4": Format(0.5, 2, "bfloat16"),
    "w4a8_mxfp4_mxfp8": Format(0.5, 1, "fp8"),
    "w4afp8": Format(0.5, 1, "fp8"),
}
"""Scales are left out: a lower bound may leave work out, never put work in."""

CACHE_BYTES = 128 * 2**20
"""More than any shipped GPU's L2 cache holds (126 MB on B200: NVIDIA Blackwell architecture brief;
128 MB on RTX PRO 6000). A benchmark repeats its op, so as much as the cache holds may not have
come from memory."""


@dataclass(frozen=True)
class Work:
    """Least work of each row: ``flops`` on ``units``, ``bytes`` from memory; shape (rows,)."""

    flops: Array
    bytes: Array
    units: Array


def bound_s(
    rows: Rows, family: str, system: System, cached_bytes: float = CACHE_BYTES
) -> Array | None:
    """Returns the least possible seconds of each row; None for families without a bound.

    The larger of operations over peak rate and bytes, less ``cached_bytes``, over peak memory
    bandwidth.
    """
    if family not in _WORK:
        return None
    work = _WORK[family](rows)
    fallback = max(system.flop_s.values())
    rates = {name: system.flop_s.get(name, fallback) for name in np.unique(work.units).tolist()}
    rate = np.array([rates[name] for name in work.units.tolist()])
    from_memory = np.maximum(work.bytes - cached_bytes, 0) / system.memory_bytes_s
    bound: Array = np.maximum(work.flops / rate, from_memory)
    return bound


def _formats(column: Array, what: str) -> Array:
    values, position = np.unique(column, return_inverse=True)
    return np.array([getattr(FORMATS[name], what) for name in values.tolist()])[position]


def _gemm(rows: Rows) -> Work:
    c = rows.columns
    m, n, k = (c[key].astype(float) for key in ("m", "n", "k"))
    weights = n * k * _formats(c["gemm_dtype"], "weight_bytes")
    inputs = m * k * _formats(c["gemm_dtype"], "input_bytes")
    return Work(2 * m * n * k, weights + inputs + 2 * m * n, _formats(c["gemm_dtype"], "units"))


def _seen(length: Array, window: Array) -> Array:
    """Returns how many cached tokens one query attends to, under a sliding window (0: none)."""
    return np.where(window > 0, np.minimum(length, np.where(window > 0, window, length)), length)


def _causal_pairs(length: Array, window: Array) -> Array:
    """Returns query-key pairs of a prompt under the causal mask, half of the square or less."""
    seen = _seen(length, window)
    return length * seen - seen * seen / 2


def _context_attention(rows: Rows) -> Work:
    c = rows.columns
    length = c["isl"].astype(float)
    batch, dim = c["batch_size"].astype(float), c["head_dim"]
    pairs = batch * _causal_pairs(length, c["window_size"].astype(float))
    flops = 4 * pairs * c["num_heads"] * dim
    moved = batch * length * dim * (2 * c["num_heads"] + 2 * c["num_key_value_heads"])
    size = _formats(c["kv_cache_dtype"], "weight_bytes")
    return Work(flops, moved * size, _fastest(c["attn_dtype"], c["kv_cache_dtype"]))


def _generation_attention(rows: Rows) -> Work:
    c = rows.columns
    seen = c["batch_size"].astype(float) * _seen(c["kv_tokens"], c["window_size"])
    size = _formats(c["kv_cache_dtype"], "weight_bytes")
    cache = 2 * seen * c["num_key_value_heads"] * c["head_dim"] * size
    flops = 4 * seen * c["num_heads"] * c["head_dim"]
    return Work(flops, cache, _fastest(c["attn_dtype"], c["kv_cache_dtype"]))


def _fastest(attention: Array, cache: Array) -> Array:
    """Returns the units a kernel could at best use: an fp8 cache may be multiplied as fp8."""
    return np.where(cache == "fp8", "fp8", _formats(attention, "units"))


_LATENT = 512 + 64
"""Elements that DeepSeek-V3 caches per token: the latent and the rotary key."""


def _mla_context(rows: Rows) -> Work:
    c = rows.columns
    batch, length = c["batch_size"].astype(float), c["isl"].astype(float)
    flops = 2 * (192 + 128) * batch * c["num_heads"] * length * length / 2
    return Work(flops, np.zeros(len(rows)), _fastest(c["mla_dtype"], c["kv_cache_dtype"]))


def _mla_generation(rows: Rows) -> Work:
    c = rows.columns
    seen = c["batch_size"].astype(float) * c["kv_tokens"]
    cache = seen * _LATENT * _formats(c["kv_cache_dtype"], "weight_bytes")
    flops = 2 * (_LATENT + 512) * seen * c["num_heads"]
    return Work(flops, cache, _fastest(c["mla_dtype"], c["kv_cache_dtype"]))


def _moe(rows: Rows) -> Work:
    """Two products per expert (a gated expert has three), spread evenly over the ranks; the
    weights of at least one expert."""
    c = rows.columns
    expert = 2.0 * c["hidden_size"] * c["inter_size"] / c["moe_tp_size"]
    flops = 2 * c["num_tokens"] * c["topk"] * expert / c["moe_ep_size"]
    weights = expert * _formats(c["moe_dtype"], "weight_bytes")
    return Work(flops, weights, _formats(c["moe_dtype"], "units"))


_WORK: Mapping[str, Callable[[Rows], Work]] = {
    "gemm": _gemm,
    "context_attention": _context_attention,
    "generation_attention": _generation_attention,
    "moe": _moe,
    "mla_context": _mla_context,
    "mla_generation": _mla_generation,
    "mla_context_module": _mla_context,
    "mla_generation_module": _mla_generation,
}
