"""Ways to predict a mixed batch from its parts, as vectors over a grid, with free parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.calibration.mixed_grid import HEAD_DIM, MixedGrid
from dynosim.hardware_models.timing.mixed import (
    OVERLAP,
    ROUNDING_WAVES,
    TILE_ROWS,
    block_keys,
)

US = 1e-6


@dataclass(frozen=True)
class Form:
    """One way: ``seconds(parameters, grid)`` of shape (points,), start and bounds of the fit."""

    name: str
    says: str
    seconds: Callable[[FloatArray, MixedGrid], FloatArray]
    start: tuple[float, ...] = ()
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()


def additive(_: FloatArray, grid: MixedGrid) -> FloatArray:
    return grid.prefill_s + grid.decode_s


def factor(parameters: FloatArray, grid: MixedGrid) -> FloatArray:
    """A factor on the sum per regime: decode's waves of tiles (3) x its share of the time (3)."""
    waves = np.digitize(grid.num_decode * grid.heads / grid.sms, [1.0, 4.0])
    share = np.digitize(grid.decode_s / (grid.prefill_s + grid.decode_s), [0.25, 0.75])
    factors = np.asarray(parameters, dtype=np.float64)[3 * waves + share]
    return np.asarray(factors * (grid.prefill_s + grid.decode_s), dtype=np.float64)


def dearer_decode(parameters: FloatArray, grid: MixedGrid) -> FloatArray:
    """Decode times a power law of sequences, context and heads per KV head."""
    return grid.prefill_s + _dearer(parameters, grid)


def p_norm(parameters: FloatArray, grid: MixedGrid) -> FloatArray:
    """The same, joined by a p-norm instead of a sum."""
    p = parameters[4]
    joined = (grid.prefill_s**p + _dearer(parameters[:4], grid) ** p) ** (1.0 / p)
    return np.asarray(joined, dtype=np.float64)


def _dearer(parameters: FloatArray, grid: MixedGrid) -> FloatArray:
    level, by_sequences, by_context, by_group = parameters
    power = (
        level
        + by_sequences * np.log(grid.num_decode)
        + by_context * np.log(grid.context)
        + by_group * np.log(grid.heads / grid.kv_heads)
    )
    return np.asarray(grid.decode_s * np.exp(power), dtype=np.float64)


KNOTS = (
    np.log2([0.2, 1.0, 4.0, 32.0]),
    np.array([0.05, 0.5, 0.95]),
    np.log2([0.05, 0.5, 4.0]),
)
"""Axes of the table: log2 waves, decode's share of the sum, log2 (keys of one KV head / L2)."""


def table(parameters: FloatArray, grid: MixedGrid) -> FloatArray:
    """A factor on the sum, linear between the knots of three dimensionless axes."""
    total = grid.prefill_s + grid.decode_s
    footprint = grid.num_decode * grid.context * 4.0 * HEAD_DIM / grid.l2_bytes
    axes = (
        np.log2(grid.num_decode * grid.heads / grid.sms),
        grid.decode_s / total,
        np.log2(footprint),
    )
    values = np.asarray(parameters).reshape([len(k) for k in KNOTS])
    placed = [_place(k, a) for k, a in zip(KNOTS, axes, strict=True)]
    blended = np.zeros(len(grid))
    for corner in np.ndindex(2, 2, 2):
        weight = np.ones(len(grid))
        for upper, (_, share) in zip(corner, placed, strict=True):
            weight = weight * (share if upper else 1.0 - share)
        cell = tuple(index + upper for upper, (index, _) in zip(corner, placed, strict=True))
        blended = blended + weight * values[cell]
    return np.asarray(blended * total, dtype=np.float64)


def _place(knots: FloatArray, at: FloatArray) -> tuple[np.ndarray, FloatArray]:
    index = np.clip(np.searchsorted(knots, at) - 1, 0, len(knots) - 2)
    share = (at - knots[index]) / (knots[index + 1] - knots[index])
    return index, np.clip(share, 0.0, 1.0)


def prefill_rate(parameters: FloatArray, grid: MixedGrid) -> FloatArray:
    """Decode computed as rows of prefill tiles, a fixed time per tile, no waves, no overlap."""
    keys = TILE_ROWS * grid.num_decode * _keys(grid)
    tiles = grid.num_decode * grid.heads / grid.sms
    return np.asarray(
        grid.prefill_s
        + np.maximum(grid.decode_s, keys * grid.s_per_pair + parameters[0] * US * tiles)
    )


def tiles(parameters: FloatArray, grid: MixedGrid) -> FloatArray:
    """The run-time model, ``timing.mixed.mixed_attention_s``, over arrays (a test compares)."""
    tile_us, empty_us, l2_share, reread_share = parameters
    n, keys = grid.num_decode, _keys(grid)
    waves = n * grid.heads / grid.sms
    key_s = grid.s_per_pair * TILE_ROWS * grid.sms / grid.heads
    rounded = np.maximum(1.0, waves + ROUNDING_WAVES * np.minimum(1.0, waves))
    crowding = (n * keys * 4.0 * HEAD_DIM / (l2_share * grid.l2_bytes)) ** 2
    reread = (grid.heads / grid.kv_heads - 1.0) * np.minimum(1.0, reread_share * n / grid.sms)
    streaming = grid.decode_s * (1.0 + reread * crowding / (1.0 + crowding))
    busy = np.maximum(streaming, (tile_us * US + key_s * keys) * rounded)
    rows = np.ceil(grid.chunk / TILE_ROWS)
    prefill_waves = rows * grid.heads / grid.sms
    tail = np.minimum(
        grid.prefill_s / np.maximum(1.0, prefill_waves), busy / np.maximum(1.0, waves)
    )
    tail = np.where(waves + prefill_waves > 1.0, OVERLAP * tail, tail)
    seconds = grid.prefill_s + busy - tail + empty_us * US * waves * (rows - 1.0)
    return np.asarray(np.maximum(seconds, np.maximum(grid.prefill_s, busy)), dtype=np.float64)


def _keys(grid: MixedGrid) -> FloatArray:
    """Keys in whole blocks: all sequences of a grid point have one length, the new key included."""
    block = block_keys(HEAD_DIM)
    return np.asarray((grid.context // block + 1.0) * block, dtype=np.float64)


TILES = Form(
    "tiles",
    "waves of prefill tiles (ours)",
    tiles,
    (2.0, 0.4, 1.0, 1.0),
    (0.0, 0.0, 0.3, 0.5),
    (10.0, 2.0, 3.0, 2.0),
)
ADDITIVE = Form("additive", "prefill + decode", additive)

_CELLS = int(np.prod([len(k) for k in KNOTS]))
FORMS = (
    ADDITIVE,
    Form("factor", "factor x sum, 9 regimes", factor, (1.3,) * 9, (0.5,) * 9, (4.0,) * 9),
    Form(
        "dearer decode",
        "prefill + decode x power law",
        dearer_decode,
        (0.3, 0.0, 0.0, 0.0),
        (-3.0, -1.0, -1.0, -1.0),
        (3.0, 1.0, 1.0, 1.0),
    ),
    Form(
        "p-norm",
        "p-norm of prefill and dearer decode",
        p_norm,
        (0.3, 0.0, 0.0, 0.0, 1.2),
        (-3.0, -1.0, -1.0, -1.0, 0.7),
        (3.0, 1.0, 1.0, 1.0, 6.0),
    ),
    Form(
        "table",
        f"factor x sum, {_CELLS} knots on 3 axes",
        table,
        (1.3,) * _CELLS,
        (0.4,) * _CELLS,
        (5.0,) * _CELLS,
    ),
    Form("prefill rate", "decode at prefill's speed", prefill_rate, (2.0,), (0.0,), (10.0,)),
    TILES,
)
