"""Attention tables: the measured rows nearest to a shape, as a curve or a grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.decode_grid import DecodeGrid, DecodeRoof
from dynosim.hardware_models.timing.interpolate import lower_envelope, nearest_sites
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve, pairs
from dynosim.hardware_models.timing.shapes import AttentionShape
from dynosim.hardware_models.timing.tables import MissingTable, OpTable
from dynosim.hardware_models.timing.transfer import carried
from dynosim.hardware_models.timing.weight_format import UNQUANTISED

PREFERRED_ATTENTION_DTYPE = {"trtllm": "fp8"}
"""Compute dtype with an fp8 cache, where a backend does not compute in bfloat16 by default."""


def nearest_rows(
    table: OpTable, shape: AttentionShape, backend: str
) -> tuple[OpTable, AttentionShape]:
    """Returns the rows of the measured shape nearest to ``shape``, and that shape.

    Cache dtype and the choice windowed or not must match; a window that was not measured is
    served by full-attention rows. Raises :class:`MissingTable`.
    """
    kernel = _gqa_kernel(table, backend, shape.kv_dtype, shape.qk_dim, shape.window)
    rows, sites, head_dim, window = kernel
    wanted = np.array([shape.kv_heads, shape.heads], dtype=np.float64)
    nearest, _ = nearest_sites(wanted, sites, count=1)
    near_kv, near_heads = (int(v) for v in sites[nearest[0]])
    rows = rows.select(num_key_value_heads=near_kv, num_heads=near_heads)
    found = replace(
        shape, heads=near_heads, kv_heads=near_kv, qk_dim=head_dim, v_dim=head_dim, window=window
    )
    return rows, found


def nearest_mla_rows(
    table: OpTable, shape: AttentionShape, backend: str
) -> tuple[OpTable, AttentionShape]:
    """Returns the latent-attention rows with the nearest head count, and the shape they are of."""
    rows, heads = _mla_kernel(table, backend, shape.kv_dtype)
    nearest, _ = nearest_sites(np.array([shape.heads], dtype=np.float64), heads, count=1)
    near = int(heads[nearest[0], 0])
    return rows.select(num_heads=near), replace(shape, heads=near, kv_heads=near)


@lru_cache(maxsize=256)
def _gqa_kernel(
    table: OpTable, backend: str, kv_dtype: str, head_dim: int, window: int | None
) -> tuple[OpTable, FloatArray, int, int | None]:
    """Returns rows of one kernel, their (KV heads, heads), head dimension and window."""
    rows = of_cache(table, kv_dtype)
    rows = _attention_dtype(rows, "attn_dtype", kv_dtype, backend)
    rows, found_dim, found_window = _head_dim_and_window(rows, head_dim, window)
    return rows, rows.distinct("num_key_value_heads", "num_heads"), found_dim, found_window


@lru_cache(maxsize=64)
def _mla_kernel(table: OpTable, backend: str, kv_dtype: str) -> tuple[OpTable, FloatArray]:
    """Returns rows of one kernel, and their numbers of heads."""
    rows = table.select(kv_cache_dtype=kv_dtype)
    rows = _attention_dtype(rows, "mla_dtype", kv_dtype, backend)
    return rows, rows.distinct("num_heads")


def prefill_curve(
    rows: OpTable, found: AttentionShape, shape: AttentionShape, measured_on: Gpu, gpu: Gpu
) -> PrefillCurve:
    """Returns the curve of ``shape`` on ``gpu`` from rows of ``found`` on ``measured_on``."""
    single = rows.select(batch_size=int(np.min(rows.axis("batch_size"))))
    tokens = single.column("isl").astype(np.float64)
    # Kernels on a GPU without 8-bit tensor cores multiply in 16 bits, whatever the cache holds.
    alike = gpu.supports(shape.compute) == measured_on.supports(shape.compute)
    compute = shape.compute if alike else "bfloat16"
    near = _prefill_roof(tokens, found, measured_on, compute)
    seconds = carried(
        single.latency_s,
        near,
        lambda on: _prefill_roof(tokens, shape, on, compute),
        gpu,
        measured_on,
    )
    return PrefillCurve.of(tokens, seconds, window=shape.window)


def decode_grid(
    rows: OpTable, found: AttentionShape, shape: AttentionShape, measured_on: Gpu, gpu: Gpu
) -> DecodeGrid:
    """Returns the grid of ``shape`` on ``gpu`` from rows of ``found`` on ``measured_on``."""
    batch, context = (np.asarray(rows.axis(k), dtype=float) for k in ("batch_size", "kv_tokens"))
    grid = DecodeGrid.of(
        batch, context, lower_envelope(rows.grid()), decode_roof(measured_on, found)
    )
    if shape.kind == "gqa" and found.kv_heads != shape.kv_heads:
        # One KV head of one sequence is one piece of work: twice the heads fill a GPU as twice the
        # sequences do. Where both were measured they agree to 2-3 %
        # (median; docs/vllm-runs.md), while time in proportion to heads is off by half and more.
        batch = grid.batch * (found.kv_heads / shape.kv_heads)
        heads = found.heads * shape.kv_heads // found.kv_heads
        grid = DecodeGrid(batch, grid.context, grid.seconds)
        found = replace(found, kv_heads=shape.kv_heads, heads=heads)
    # Full-attention rows stand in for a window that was not measured: scale first, then clamp.
    like = shape if found.window is not None else replace(shape, window=None)
    if found != like or gpu != measured_on:
        grid = grid.mapped(_carrier(found, like, measured_on, gpu))
    grid = grid.monotone()
    return grid.clamped(shape.window) if shape.window and found.window is None else grid


def decode_roof(gpu: Gpu, shape: AttentionShape) -> DecodeRoof:
    """Returns what the KV read and the arithmetic take at best."""
    window = np.inf if shape.window is None else float(shape.window)
    return lambda n, c: roofline.decode_attention_s(gpu, n, np.minimum(c, window), shape)


def _carrier(
    found: AttentionShape, shape: AttentionShape, measured_on: Gpu, gpu: Gpu
) -> Callable[[FloatArray, FloatArray, FloatArray], FloatArray]:
    near = decode_roof(measured_on, found)
    return lambda s, n, c: carried(
        s, near(n, c), lambda on: decode_roof(on, shape)(n, c), gpu, measured_on
    )


def _prefill_roof(tokens: FloatArray, shape: AttentionShape, gpu: Gpu, compute: str) -> FloatArray:
    seen = np.array([pairs(t, 0, shape.window) for t in tokens.tolist()])
    arithmetic = shape.prefill_flop_per_pair / roofline.peak_flop_s(gpu, compute) * seen
    return np.maximum(arithmetic, tokens * shape.kv_bytes_per_token / gpu.hbm_bandwidth_bytes_s)


def of_cache(table: OpTable, kv_dtype: str) -> OpTable:
    """Returns the rows of a cache in ``kv_dtype``; :class:`MissingTable` where there are none.

    For an unquantised cache, in the first of :data:`UNQUANTISED` that was measured.
    """
    measured = [str(dtype) for dtype in table.axis("kv_cache_dtype")]
    alike = UNQUANTISED if kv_dtype in UNQUANTISED else (kv_dtype,)
    found = next((dtype for dtype in alike if dtype in measured), kv_dtype)
    return table.select(kv_cache_dtype=found)


def _attention_dtype(rows: OpTable, key: str, kv_dtype: str, backend: str) -> OpTable:
    measured = [str(d) for d in rows.axis(key)]
    wanted = "bfloat16"
    if kv_dtype == "fp8":
        wanted = PREFERRED_ATTENTION_DTYPE.get(backend, "bfloat16")
    return rows.select(**{key: wanted if wanted in measured else measured[0]})


def _head_dim_and_window(
    rows: OpTable, wanted: int, window: int | None
) -> tuple[OpTable, int, int | None]:
    dims = np.asarray(rows.axis("head_dim"), dtype=np.float64)
    nearest, _ = nearest_sites(np.array([wanted], dtype=np.float64), dims[:, None], count=1)
    head_dim = int(dims[nearest[0]])
    rows = rows.select(head_dim=head_dim)
    windows = [int(w) for w in rows.axis("window_size")]
    if window in windows:
        return rows.select(window_size=window), head_dim, window
    if 0 not in windows:
        raise MissingTable(f"{rows.name}: only windows {windows}, asked for {window}")
    return rows.select(window_size=0), head_dim, None
