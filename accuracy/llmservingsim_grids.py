"""LLMServingSim's op grids as own kernel tables (``dynosim.hardware_models.timing.own_tables``)."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dynosim.hardware_models.cards import read_yaml
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.timing.own_tables import HEADER, LATENCY, OWN_FAMILY_KEYS

GRIDS = {
    "RTX4090_Llama-3.1-8B": "opgrids/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1",
    "RTXPRO6000_Llama-3.1-8B": "opgrids/RTXPRO6000/meta-llama/Llama-3.1-8B/bf16/tp1",
}

HARDWARE = {"RTX4090": "rtx_4090", "RTXPRO6000": "rtx_pro_6000_server"}

HIDDEN, HEAD_DIM, VOCABULARY = 4096, 128, 128_256
"""Llama-3.1-8B (its config.json), the only model whose runs are here."""

Row = tuple[Any, ...]


def write_tables(grid: Path, folder: Path) -> None:
    """Writes the grid of one (GPU, model, degree) as a folder of own tables."""
    facts = read_yaml(grid.parent / "meta.yaml")
    gpu = get_gpu(HARDWARE[facts["hardware"]])
    folder.joinpath(HEADER).write_text(
        f"gpu: {gpu.key}\nbackend: vllm\nversion: {facts['vllm_version']}\n"
        f"device: {facts['gpu']}\nsource: LLMServingSim profile of {facts['profiled_at'][:10]}\n"
    )
    shape = facts["engine_effective"]["hf_overrides"]
    degree = max(facts["tp_degrees"]) // int(grid.name.removeprefix("tp"))
    q, kv = (
        shape[key] * degree * HEAD_DIM for key in ("num_attention_heads", "num_key_value_heads")
    )
    inner = shape["intermediate_size"] * degree
    gemms = {
        "qkv_proj": (q + 2 * kv, HIDDEN),
        "o_proj": (HIDDEN, q),
        "gate_up_proj": (2 * inner, HIDDEN),
        "down_proj": (HIDDEN, inner),
        "lm_head": (VOCABULARY, HIDDEN),
    }
    moved = {
        "layernorm": 8 * HIDDEN,
        "rotary_emb": 4 * (q + 2 * kv),
        "act_fn": 2 * 3 * inner,
        "embedding": 4 * HIDDEN,
        "sampler": 12 * VOCABULARY,
    }
    ops = [*_read(grid / "dense.csv.gz"), *_read(grid / "per_sequence.csv.gz")]
    _write(folder, "gemm", (("bfloat16", *gemms[op], n, us) for op, n, us in ops if op in gemms))
    _write(folder, "elementwise", ((moved[op], n, us) for op, n, us in ops if op in moved))
    heads = ("bfloat16", "bfloat16", HEAD_DIM, 0, kv // HEAD_DIM, q // HEAD_DIM)
    _write(folder, "batch_attention", ((*heads, *row) for row in _read(grid / "attention.csv.gz")))
    if facts["skew_fit"]["enabled"]:
        _write(folder, "uneven_decode", ((*heads, *row) for row in _uneven(grid)))


def _uneven(grid: Path) -> Iterator[Row]:
    """Yields (sequences, mean, longest, us): t(mean) + alpha (t(longest) - t(mean)), by its fit.

    Of the fitted buckets those without prefill and with up to 15 % long sequences.
    """
    even = {
        (row[2], row[3]): float(row[4]) for row in _read(grid / "attention.csv.gz") if row[0] == "0"
    }
    found: dict[str, list[float]] = {}
    for chunk, sequences, share, longest, _, alpha, _ in _read(grid / "skew_fit.csv.gz"):
        if chunk == "0" and share in ("sr<=5%", "sr<=15%") and longest == "kvB<=4k":
            found.setdefault(sequences.removeprefix("n<="), []).append(float(alpha))
    for n, alphas in found.items():
        mean, longest = even[n, "1024"], even[n, "4096"]
        yield n, "1024", "4096", mean + sum(alphas) / len(alphas) * (longest - mean)


def _read(path: Path) -> list[Row]:
    with gzip.open(path, "rt") as lines:
        rows = csv.reader(lines)
        next(rows)
        return [tuple(row) for row in rows]


def _write(folder: Path, family: str, rows: Iterable[Row]) -> None:
    with folder.joinpath(f"{family}.csv").open("w", newline="") as lines:
        table = csv.writer(lines)
        table.writerow((*OWN_FAMILY_KEYS[family], LATENCY))
        table.writerows(rows)
