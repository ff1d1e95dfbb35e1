"""Packs rows into the bytes that ``timing.tables.decode`` reads."""

from __future__ import annotations

import json
import lzma
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynosim.hardware_models.build_data.rows import Rows, concatenate
from dynosim.hardware_models.timing.tables import MAGIC, STEPS_PER_OCTAVE, Origin

_FILTERS = [
    {
        "id": lzma.FILTER_LZMA2,
        "preset": 9 | lzma.PRESET_EXTREME,
        "dict_size": 2**22,
        **{"lc": 0, "lp": 0, "pb": 0},
    }
]
"""Byte columns have none of text's contexts: lc 0 gave the smallest files of 0, 3 and 4. The
dictionary need not be longer than the longest table."""


@dataclass(frozen=True)
class Labels:
    """What a table is of."""

    gpu: str
    family: str
    backend: str
    version: str


def pack(labels: Labels, parts: Sequence[tuple[Rows, Origin]]) -> bytes:
    """Returns the file of one table, made of parts that share their keys and no shape.

    Equal input gives equal bytes (with one build of liblzma).
    """
    origins = list(dict.fromkeys(origin for _, origin in parts))
    rows = concatenate([part for part, _ in parts])
    origin = np.repeat([origins.index(o) for _, o in parts], [len(part) for part, _ in parts])
    order = np.argsort(rows.ids(rows.keys), kind="stable")
    rows, origin = rows.take(order), origin[order]
    axes = [np.unique(column) for column in rows.columns.values()]
    header = {
        **asdict(labels),
        "keys": list(rows.keys),
        "axes": [axis.tolist() for axis in axes],
        "rows": len(rows),
        "origins": [asdict(o) for o in origins],
    }
    body = [
        _index(np.searchsorted(axis, column), len(axis))
        for axis, column in zip(axes, rows.columns.values(), strict=True)
    ]
    raw = [MAGIC, *_header(header), *body, _index(origin, len(origins)), *_latency(rows.latency_s)]
    return lzma.compress(
        b"".join(raw), format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=_FILTERS
    )


def _header(header: Mapping[str, Any]) -> tuple[bytes, bytes]:
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    return struct.pack("<I", len(text)), text


def _index(column: NDArray[Any], axis_length: int) -> bytes:
    """Returns the differences from row to row, modulo the width of the numbers."""
    dtype: Any = np.dtype("u1" if axis_length <= 256 else "<u2")
    first = np.zeros(1, dtype)
    return np.diff(column.astype(dtype), prepend=first).astype(dtype).tobytes()


def _latency(latency_s: NDArray[np.float64]) -> tuple[bytes, bytes]:
    """Returns low and high bytes of the differences of the log2 steps, zigzag: 0, -1, 1, -2, 2."""
    steps = np.round(np.log2(latency_s * 1e3) * STEPS_PER_OCTAVE).astype(np.int64)
    if np.abs(steps).max(initial=0) >= 2**15:
        raise ValueError("latency outside 2^-64 to 2^64 milliseconds")
    moves = np.diff(steps, prepend=0)
    zigzag = ((moves << 1) ^ (moves >> 63)).astype(np.uint32)
    if zigzag.max(initial=0) >= 2**16:
        raise ValueError("latency changes by more than 2^64 from row to row")
    return (zigzag & 0xFF).astype(np.uint8).tobytes(), (zigzag >> 8).astype(np.uint8).tobytes()
