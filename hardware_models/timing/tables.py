"""Measured kernel latencies as compact tables: one file per GPU, backend and op family.

What each family's rows mean, and their keys, stands in :data:`FAMILY_KEYS` and in
``data/tables/README.md``; the files are written by ``hardware_models.build_data``.
"""

from __future__ import annotations

import json
import lzma
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from dynosim.hardware_models.arrays import (
    AnyArray,
    BoolArray,
    ByteArray,
    FloatArray,
    Int32Array,
    IntArray,
)

TABLES_DIR = Path(__file__).resolve().parent.parent / "data" / "tables"

Source = Literal["measured", "transferred"]
Axis = IntArray | tuple[str, ...]

SHARED_FAMILIES: Mapping[str, str] = MappingProxyType({"nccl": "nccl"})
"""Families that no serving backend owns, and the backend name they are stored under."""

FAMILY_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gemm": ("gemm_dtype", "n", "k", "m"),
        "quantise": ("part", "k", "m"),
        "context_attention": (
            *("attn_dtype", "kv_cache_dtype", "head_dim", "window_size"),
            *("num_key_value_heads", "num_heads", "batch_size", "isl"),
        ),
        "generation_attention": (
            *("attn_dtype", "kv_cache_dtype", "head_dim", "window_size"),
            *("num_key_value_heads", "num_heads", "batch_size", "kv_tokens"),
        ),
        "moe": (
            *("moe_dtype", "hidden_size", "inter_size", "topk", "num_experts"),
            *("moe_tp_size", "moe_ep_size", "distribution", "num_tokens"),
        ),
        "mla_context": ("mla_dtype", "kv_cache_dtype", "num_heads", "batch_size", "isl"),
        "mla_generation": ("mla_dtype", "kv_cache_dtype", "num_heads", "batch_size", "kv_tokens"),
        "mla_context_module": (
            *("mla_dtype", "kv_cache_dtype", "gemm_dtype", "num_heads", "batch_size", "isl"),
        ),
        "mla_generation_module": (
            *("mla_dtype", "kv_cache_dtype", "gemm_dtype", "num_heads", "batch_size", "kv_tokens"),
        ),
        "mla_bmm": ("bmm_dtype", "op", "num_heads", "num_tokens"),
        "custom_allreduce": ("allreduce_dtype", "launch", "num_gpus", "message_bytes"),
        "nccl": ("op", "nccl_dtype", "num_gpus", "message_bytes"),
        "alltoall": (
            *("comm_backend", "phase", "comm_dtype", "ep_size", "hidden_size"),
            *("topk", "num_experts", "num_tokens"),
        ),
    }
)
"""Key columns per family, in the order of :attr:`OpTable.keys` and of the row sort."""

MAGIC = b"DYNOTAB1"
STEPS_PER_OCTAVE = 512
"""Latency is stored as round(log2(milliseconds) * 512): at most 0.068 % off, 16 bits a row."""


class MissingTable(LookupError):
    """No measured rows for what was asked; the text says what there is instead."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a group of rows was measured, and why it stands in where it does.

    ``transferred_from`` names the backend and version that the rows come from when it is not
    the table's own; ``rejected`` says in words what was wrong with the rows they replace.
    """

    source: Source
    backend: str
    version: str
    device: str
    upstream: str
    transferred_from: str | None = None
    rejected: str | None = None


@dataclass(frozen=True, eq=False)
class OpTable:
    """Measured latency of one op (one kernel, one layer) over a ragged grid of shapes.

    ``index`` has shape (rows, keys): positions in ``axes``, rows sorted lexicographically and
    unique. ``latency_s`` has shape (rows,), in seconds. ``version``, ``source``,
    ``transferred_from`` and ``rejected`` sum up the rows held: of several origins, the versions
    are joined with commas and ``source`` is the weakest ("transferred" if any row is), so select
    a dtype first and ask then.
    """

    gpu: str
    family: str
    backend: str
    version: str
    device: str
    source: str
    transferred_from: str | None
    rejected: str | None
    keys: tuple[str, ...]
    axes: tuple[Axis, ...]
    index: Int32Array
    latency_s: FloatArray
    origins: tuple[Origin, ...] = ()
    origin: ByteArray = field(default_factory=lambda: np.zeros(0, np.uint8))
    """Per row, the position in ``origins``; empty where the rows share one unnamed origin."""

    def __len__(self) -> int:
        return len(self.latency_s)

    def axis(self, key: str) -> Axis:
        """Returns the sorted values that ``key`` takes; :class:`MissingTable` for no such key."""
        return self.axes[self._position(key)]

    def column(self, key: str) -> AnyArray:
        """Returns the value of ``key`` in every row, shape (rows,)."""
        position = self._position(key)
        return np.asarray(self.axes[position])[self.index[:, position]]

    def select(self, **equal: str | int) -> OpTable:
        """Returns the rows where each named key equals its value, without those keys.

        Raises :class:`MissingTable` where no row does; the axes shrink to what the rows use.
        """
        keep = np.ones(len(self), dtype=bool)
        for key, value in equal.items():
            keep &= self.index[:, self._position(key)] == self._find(key, value)
        if not keep.any():
            asked = ", ".join(f"{key}={value}" for key, value in equal.items())
            raise MissingTable(f"{self.name}: no row with {asked}")
        return self._rows(keep, dropped=frozenset(equal))

    def distinct(self, *keys: str) -> FloatArray:
        """Returns the distinct values of numeric keys together, shape (sites, keys), sorted."""
        positions = [self._position(key) for key in keys]
        sizes = [len(self.axes[p]) for p in positions]
        code = np.zeros(len(self), dtype=np.int64)
        for p, size in zip(positions, sizes, strict=True):
            code = code * size + self.index[:, p]
        index = np.unravel_index(np.flatnonzero(np.bincount(code)), sizes)
        axes = [np.asarray(self.axes[p], dtype=np.float64) for p in positions]
        return np.column_stack([axis[i] for axis, i in zip(axes, index, strict=True)])

    def grid(self) -> FloatArray:
        """Returns the latencies in seconds on the full product of the axes, NaN where none."""
        dense = np.full([len(axis) for axis in self.axes], np.nan)
        dense[tuple(self.index.T)] = self.latency_s
        return dense

    @property
    def name(self) -> str:
        """GPU, backend, version and family, for messages."""
        return f"{self.gpu} {self.backend} {self.version} {self.family}"

    def _position(self, key: str) -> int:
        if key not in self.keys:
            raise MissingTable(f"{self.name}: no key {key!r}, only {', '.join(self.keys)}")
        return self.keys.index(key)

    def _find(self, key: str, value: str | int) -> int:
        axis = self.axis(key)
        found = np.flatnonzero(np.asarray(axis) == value)
        if not len(found):
            known = ", ".join(str(v) for v in axis)
            raise MissingTable(f"{self.name}: no {key}={value}, only {known}")
        return int(found[0])

    def _rows(self, keep: BoolArray, dropped: frozenset[str]) -> OpTable:
        positions = [i for i, key in enumerate(self.keys) if key not in dropped]
        axes, columns = [], []
        for i in positions:
            axis, column = _shrink(self.axes[i], self.index[keep, i])
            axes.append(axis)
            columns.append(column)
        index = np.stack(columns, axis=1) if columns else np.zeros((int(keep.sum()), 0), np.int32)
        left = replace(
            self,
            keys=tuple(self.keys[i] for i in positions),
            axes=tuple(axes),
            index=_readonly(index),
            latency_s=_readonly(self.latency_s[keep]),
        )
        return _summarised(left, self.origin[keep]) if self.origins else left


def _shrink(axis: Axis, column: Int32Array) -> tuple[Axis, Int32Array]:
    """Returns the axis without the values that no row uses, and the column in its terms."""
    used = np.bincount(column, minlength=len(axis)) > 0
    renumbered = (np.cumsum(used, dtype=np.int32) - 1)[column]
    if isinstance(axis, tuple):
        return tuple(value for value, use in zip(axis, used, strict=True) if use), renumbered
    return _readonly(axis[used]), renumbered


def _summarised(table: OpTable, origin: ByteArray) -> OpTable:
    """Returns ``table`` with its provenance fields told from the origins that its rows have."""
    # Not np.unique, which would load numpy.ma for this.
    held = [table.origins[i] for i in np.flatnonzero(np.bincount(origin))]
    weakest: Source = "transferred" if any(o.source == "transferred" for o in held) else "measured"
    return replace(
        table,
        version=_joined(o.version for o in held if o.backend == table.backend) or table.version,
        device=_joined(o.device for o in held),
        source=weakest,
        transferred_from=_joined(o.transferred_from for o in held) or None,
        rejected=_joined(o.rejected for o in held) or None,
        origin=_readonly(origin),
    )


def _joined(words: Any) -> str:
    return ", ".join(dict.fromkeys(word for word in words if word))


def _readonly(array: AnyArray) -> AnyArray:
    array.setflags(write=False)
    return array


def load_table(gpu: str, backend: str, family: str) -> OpTable:
    """Returns the shipped table of one op family; read once per process.

    ``gpu`` is a folder name of ``data/tables`` (``h200_sxm``), or the absolute path of a folder of
    own tables (:mod:`.own_tables`), which are all of one backend. Families of
    :data:`SHARED_FAMILIES` are the same for every backend. Raises :class:`MissingTable`.
    """
    if Path(gpu).is_absolute():
        from dynosim.hardware_models.timing.own_tables import own_table

        return own_table(gpu, family)
    return _load(gpu, SHARED_FAMILIES.get(family, backend), family)


@lru_cache(maxsize=64)
def _load(gpu: str, backend: str, family: str) -> OpTable:
    path = TABLES_DIR / gpu / f"{backend}.{family}.xz"
    if not path.is_file():
        raise MissingTable(f"{gpu}: no measured {family} table for {backend}")
    return decode(path.read_bytes())


def decode(packed: bytes) -> OpTable:
    """Returns the table of one file's bytes; ValueError where they are not such a file.

    Layout, after xz: magic, length of the header (uint32, little endian), header (JSON), then
    per key the row-to-row differences of its index (modulo 2^8, or 2^16 where the axis is
    longer), those of the origin, and those of the latency (zigzag: 0, -1, 1, -2, ... as 0, 1, 2,
    3, ...) as low bytes and high bytes.
    """
    try:
        raw = lzma.decompress(packed)
    except lzma.LZMAError as error:
        raise ValueError(f"not a kernel table: {error}") from error
    if not raw.startswith(MAGIC):
        raise ValueError("not a kernel table: wrong magic bytes")
    (length,) = struct.unpack_from("<I", raw, len(MAGIC))
    start = len(MAGIC) + 4
    header = json.loads(raw[start : start + length])
    columns = _Columns(raw, start + length, header["rows"])
    axes = tuple(_axis(values) for values in header["axes"])
    index = np.stack([columns.index(len(axis)) for axis in axes], axis=1)
    origin = columns.index(len(header["origins"])).astype(np.uint8)
    table = OpTable(
        gpu=header["gpu"],
        family=header["family"],
        backend=header["backend"],
        version=header["version"],
        device="",
        source="measured",
        transferred_from=None,
        rejected=None,
        keys=tuple(header["keys"]),
        axes=axes,
        index=_readonly(index),
        latency_s=_readonly(columns.latency_s()),
        origins=tuple(Origin(**fields) for fields in header["origins"]),
    )
    return _summarised(table, origin)


def _axis(values: list[Any]) -> Axis:
    if values and isinstance(values[0], str):
        return tuple(values)
    return _readonly(np.asarray(values, dtype=np.int64))


class _Columns:
    """Reads the body of a table file column by column."""

    def __init__(self, raw: bytes, offset: int, rows: int) -> None:
        self.raw, self.offset, self.rows = raw, offset, rows

    def _take(self, dtype: Any) -> AnyArray:
        column = np.frombuffer(self.raw, dtype=dtype, count=self.rows, offset=self.offset)
        self.offset += column.nbytes
        return column

    def index(self, axis_length: int) -> Int32Array:
        dtype: Any = np.dtype("u1" if axis_length <= 256 else "<u2")
        return np.cumsum(self._take(dtype), dtype=dtype).astype(np.int32)

    def latency_s(self) -> FloatArray:
        low, high = self._take(np.uint8), self._take(np.uint8)
        zigzag = low.astype(np.int32) | (high.astype(np.int32) << 8)
        moves = (zigzag >> 1) ^ -(zigzag & 1)
        latency_s: FloatArray = np.exp2(np.cumsum(moves) / STEPS_PER_OCTAVE) * 1e-3
        return latency_s


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """One shipped table: what is in the file, without reading it."""

    gpu: str
    backend: str
    version: str
    family: str
    rows: int
    source: str
    device: str
    file: str
    bytes: int
    sha256: str


def table_catalogue() -> tuple[CatalogueEntry, ...]:
    """Returns what is shipped, sorted by GPU, backend and family; read from the manifests."""
    found = []
    for path in sorted(TABLES_DIR.glob("*/manifest.json")):
        for entry in json.loads(path.read_text())["tables"]:
            fields = {name: entry[name] for name in CatalogueEntry.__dataclass_fields__}
            found.append(CatalogueEntry(**fields))
    return tuple(sorted(found, key=lambda e: (e.gpu, e.backend, e.family)))
