"""Measured attention of mixed batches beside that of their parts, as columns."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.timing.mixed import gpu_slots

FloatArray: TypeAlias = npt.NDArray[np.float64]

GPU_KEYS = {"RTX4090": "rtx_4090", "RTXPRO6000": "rtx_pro_6000_server"}
"""Folder of the measurements -> key of the GPU catalogue."""

HEAD_DIM = 128
"""Head dimension of every measured model (their config.json)."""

COLUMNS = ["prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"]


@dataclass(frozen=True, kw_only=True)
class MixedGrid:
    """Returns mixed points of one or more measured (GPU, model, shards), one row each.

    Arrays of shape (points,): seconds of one layer on one GPU, ``prefill_s`` and ``decode_s``
    measured alone; ``s_per_pair`` of the largest measured prefill of that grid.
    """

    name: npt.NDArray[np.str_]
    """Which measured grid a row is of: GPU, model and shards."""
    gpu: npt.NDArray[np.str_]
    model: npt.NDArray[np.str_]
    heads: FloatArray
    kv_heads: FloatArray
    sms: FloatArray
    l2_bytes: FloatArray
    s_per_pair: FloatArray
    chunk: FloatArray
    prefix: FloatArray
    num_decode: FloatArray
    context: FloatArray
    prefill_s: FloatArray
    decode_s: FloatArray
    mixed_s: FloatArray

    def __len__(self) -> int:
        return len(self.mixed_s)

    def where(self, keep: npt.NDArray[Any]) -> MixedGrid:
        """Returns the rows that a mask or index array picks."""
        return replace(self, **{f.name: getattr(self, f.name)[keep] for f in fields(self)})

    def thinned(self, points: int) -> MixedGrid:
        """Returns about ``points`` evenly spaced rows of each grid, so that all weigh alike."""
        keep = []
        for name in sorted(set(self.name)):
            rows = np.flatnonzero(self.name == name)
            keep.append(rows[np.linspace(0, len(rows) - 1, min(points, len(rows))).astype(int)])
        return self.where(np.concatenate(keep))


def read_mixed_grids(folder: Path) -> MixedGrid:
    """Returns all mixed points below ``folder``.

    Expects ``<hardware>/<organisation>/<model>/<dtype>/tp<n>/attention.csv[.gz]`` with a
    ``meta.yaml`` beside ``tp<n>``, as LLMServingSim's profiler writes them. UserError where
    there are none or one does not read.
    """
    paths = sorted(folder.rglob("attention.csv*"))
    if not paths:
        raise UserError("no attention.csv or attention.csv.gz below", where=str(folder))
    grids = [_one(path) for path in paths]
    return MixedGrid(
        **{f.name: np.concatenate([getattr(g, f.name) for g in grids]) for f in fields(MixedGrid)}
    )


def _one(path: Path) -> MixedGrid:
    rows = _rows(path)
    chunk, prefix, num_decode, context, us = rows.T
    prefill = {(c, p): t for c, p, n, _, t in rows if n == 0 and c > 0}
    decode = {(n, k): t for c, _, n, k, t in rows if c == 0 and n > 0}
    mixed = [
        i
        for i, (c, p, n, k, _) in enumerate(rows)
        if c > 0 and n > 0 and (c, p) in prefill and (n, k) in decode
    ]
    if not mixed:
        raise UserError("no mixed batch whose parts were measured too", where=str(path))
    largest = max(prefill, key=_pairs)
    return MixedGrid(
        **_identity(path, len(mixed)),
        s_per_pair=np.full(len(mixed), 1e-6 * prefill[largest] / _pairs(largest)),
        chunk=chunk[mixed],
        prefix=prefix[mixed],
        num_decode=num_decode[mixed],
        context=context[mixed],
        prefill_s=1e-6 * np.array([prefill[chunk[i], prefix[i]] for i in mixed]),
        decode_s=1e-6 * np.array([decode[num_decode[i], context[i]] for i in mixed]),
        mixed_s=1e-6 * us[mixed],
    )


def _pairs(shape: tuple[float, float]) -> float:
    """Returns (query, key) pairs of a causal chunk behind a prefix."""
    chunk, prefix = shape
    return chunk * (prefix + chunk / 2)


def _identity(path: Path, points: int) -> dict[str, Any]:
    """Returns the columns that are the same in all rows of a grid, from its place and facts."""
    hardware, _, model, _, shards = path.parts[-6:-1]
    if hardware not in GPU_KEYS:
        raise unknown_name("measured gpu", hardware, GPU_KEYS, where=str(path))
    key, tp = GPU_KEYS[hardware], int(shards.removeprefix("tp"))
    heads, kv_heads = _heads(path.parent.parent / "meta.yaml", tp)
    gpu = gpu_slots(get_gpu(key))
    assert gpu is not None, f"{key} runs another kernel"
    return {
        "name": np.full(points, f"{key} {model} tp{tp}"),
        "gpu": np.full(points, key),
        "model": np.full(points, model),
        "heads": np.full(points, float(heads)),
        "kv_heads": np.full(points, float(kv_heads)),
        "sms": np.full(points, float(gpu.sms)),
        "l2_bytes": np.full(points, float(gpu.l2_bytes)),
    }


def _rows(path: Path) -> FloatArray:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as lines:
        table = csv.reader(lines)
        header = next(table)
        if header != COLUMNS:
            raise UserError(
                f"columns {header}", where=f"{path}:1", hint=f"expected: {', '.join(COLUMNS)}"
            )
        return np.array([[float(cell) for cell in row] for row in table])


def _heads(meta: Path, tp: int) -> tuple[int, int]:
    """Returns query and KV heads of one shard; the file states those of its highest degree."""
    import yaml

    facts = yaml.load(meta.read_bytes(), Loader=yaml.CSafeLoader)
    stated = facts["engine_effective"]["hf_overrides"]
    whole = max(facts["tp_degrees"])
    return (
        stated["num_attention_heads"] * whole // tp,
        stated["num_key_value_heads"] * whole // tp,
    )
