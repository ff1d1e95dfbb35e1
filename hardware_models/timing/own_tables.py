"""Kernel tables that users measured themselves: a folder of CSV files, asked before the shipped.

The folder holds ``tables.yaml`` (what was measured: :class:`OwnTables`, one key a field) and one
``<family>.csv`` or ``<family>.csv.gz`` an op family, with the key columns of
:data:`OWN_FAMILY_KEYS` in any order and ``latency_us``. ``docs/kernel-tables.md`` has an example.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from dynosim.hardware_models.arrays import AnyArray
from dynosim.hardware_models.cards import read_yaml
from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.gpu_file import is_card_file
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.timing.tables import FAMILY_KEYS, MissingTable, OpTable

HEADER = "tables.yaml"
LATENCY = "latency_us"

OWN_FAMILY_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **FAMILY_KEYS,
        "elementwise": ("bytes_per_token", "num_tokens"),
        "batch_attention": (
            *("attn_dtype", "kv_cache_dtype", "head_dim", "window_size"),
            *("num_key_value_heads", "num_heads"),
            *("chunk_tokens", "prefix_tokens", "num_decode", "kv_tokens"),
        ),
        "uneven_decode": (
            *("attn_dtype", "kv_cache_dtype", "head_dim", "window_size"),
            *("num_key_value_heads", "num_heads", "num_decode", "mean_tokens", "longest_tokens"),
        ),
    }
)
"""Key columns per family: those of the shipped tables, and three more.

``elementwise`` is one memory-bound kernel (norm, activation, rotary embedding, sampler) that moves
``bytes_per_token``. ``batch_attention`` is the attention of one layer over a whole batch: one chunk
of ``chunk_tokens`` behind ``prefix_tokens`` and ``num_decode`` sequences of ``kv_tokens`` each; 0
where a part is absent. It stands in for ``context_attention`` and ``generation_attention``.
``uneven_decode`` is decode attention of sequences of unequal context: some are ``longest_tokens``
long, all of them ``mean_tokens`` on average.
"""

_WORDS = ("op", "launch", "distribution", "comm_backend", "phase")


@dataclass(frozen=True, kw_only=True)
class OwnTables:
    """What a folder's tables were measured on.

    ``gpu`` is a key of the catalogue, or that of the card in the folder that the header names;
    ``source`` says who measured, how and when.
    """

    folder: str
    gpu: str
    backend: str
    version: str
    device: str
    source: str


@lru_cache(maxsize=16)
def own_tables(folder: str) -> OwnTables:
    """Returns what ``folder`` holds; UserError where it is no folder of tables.

    Files of a family that nobody reads are an error, lest a misspelt one goes unnoticed.
    """
    path = Path(folder).resolve()
    header = path / HEADER
    if not header.is_file():
        raise UserError(f"no {HEADER}", where=str(path), hint="see docs/kernel-tables.md")
    found = read_yaml(header)
    allowed = [f.name for f in fields(OwnTables) if f.name != "folder"]
    for key in found:
        if key not in allowed:
            raise unknown_name("key", str(key), allowed, where=str(header))
    if missing := [key for key in allowed if not found.get(key)]:
        hint = f"needed: {', '.join(allowed)}"
        raise UserError(f"`{missing[0]}` is missing", where=str(header), hint=hint)
    for file in path.glob("*.csv*"):
        family = file.name.split(".", 1)[0]
        if family not in OWN_FAMILY_KEYS:
            raise unknown_name("op family", family, OWN_FAMILY_KEYS, where=str(file))
    words = {key: str(found[key]) for key in allowed}
    try:
        named = words.pop("gpu")
        gpu = get_gpu(str(path / named) if is_card_file(named) else named).key
    except UserError as error:
        raise error.at(str(header)) from None
    return OwnTables(folder=str(path), gpu=gpu, **words)


@lru_cache(maxsize=64)
def own_table(folder: str, family: str) -> OpTable:
    """Returns one family's table; :class:`MissingTable` for no such file, UserError for a bad one.

    Files must have every key column, whole positive numbers or words in them, a positive latency
    in every row, and no shape twice.
    """
    tables = own_tables(folder)
    named = [Path(folder) / f"{family}.csv", Path(folder) / f"{family}.csv.gz"]
    path = next((p for p in named if p.is_file()), None)
    if path is None:
        raise MissingTable(f"{folder}: no {family}.csv")
    keys = OWN_FAMILY_KEYS[family]
    columns, latency_s = _read_columns(path, keys)
    axes = [np.unique(column) for column in columns]
    index = np.stack(
        [np.searchsorted(axis, c) for axis, c in zip(axes, columns, strict=True)], axis=1
    ).astype(np.int32)
    order = np.lexsort(index.T[::-1])
    _refuse_repeats(index[order], order, path)
    return OpTable(
        gpu=tables.gpu,
        family=family,
        backend=tables.backend,
        version=tables.version,
        device=tables.device,
        source="measured",
        transferred_from=None,
        rejected=None,
        keys=keys,
        axes=tuple(tuple(a.tolist()) if a.dtype.kind == "U" else a for a in axes),
        index=index[order],
        latency_s=latency_s[order],
    )


def _read_columns(path: Path, keys: tuple[str, ...]) -> tuple[list[AnyArray], AnyArray]:
    """Returns the key columns in the order of ``keys``, and the latencies in seconds."""
    text = path.read_bytes()
    text = gzip.decompress(text) if path.suffix == ".gz" else text
    table = csv.reader(text.decode().splitlines())
    header = next(table, [])
    if sorted(header) != sorted((*keys, LATENCY)):
        raise UserError(
            f"columns {', '.join(header)}",
            where=f"{path}:1",
            hint=f"expected: {', '.join((*keys, LATENCY))}",
        )
    rows = list(_cells(table, len(header), path))
    if not rows:
        raise UserError("no rows", where=str(path))
    cells = dict(zip(header, zip(*rows, strict=True), strict=True))
    latency_us = _numbers(cells[LATENCY], LATENCY, float, path)
    if (bad := np.flatnonzero(~(latency_us > 0) | ~np.isfinite(latency_us))).size:
        message = f"`{LATENCY}` is {cells[LATENCY][bad[0]]}"
        raise UserError(message, where=f"{path}:{bad[0] + 2}", hint="allowed: a number > 0")
    columns = [
        np.array(cells[key]) if _is_word(key) else _numbers(cells[key], key, int, path)
        for key in keys
    ]
    return columns, latency_us * 1e-6


def _cells(table: Any, width: int, path: Path) -> Iterator[list[str]]:
    for line, row in enumerate(table, start=2):
        if len(row) != width:
            raise UserError(f"{len(row)} cells, not {width}", where=f"{path}:{line}")
        yield row


def _is_word(key: str) -> bool:
    return key in _WORDS or key.endswith("_dtype")


def _numbers(cells: tuple[str, ...], key: str, kind: type, path: Path) -> AnyArray:
    try:
        return np.array([kind(cell) for cell in cells])
    except ValueError:
        for line, cell in enumerate(cells, start=2):
            try:
                kind(cell)
            except ValueError:
                hint = "allowed: a whole number" if kind is int else "allowed: a number"
                message = f"`{key}` is {cell!r}"
                raise UserError(message, where=f"{path}:{line}", hint=hint) from None
        raise


def _refuse_repeats(index: AnyArray, order: AnyArray, path: Path) -> None:
    same = np.flatnonzero((np.diff(index, axis=0) == 0).all(axis=1))
    if same.size:
        first, again = sorted((int(order[same[0]]) + 2, int(order[same[0] + 1]) + 2))
        raise UserError(f"the shape of line {first} again", where=f"{path}:{again}")
