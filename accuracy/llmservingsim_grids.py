"""LLMServingSim's op grids as own kernel tables (``dynosim.hardware_models.timing.own_tables``)."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dynosim.hardware_models.cards import read_yaml
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.ops import Experts, Gemm, decompose
from dynosim.hardware_models.timing.own_tables import HEADER, LATENCY, OWN_FAMILY_KEYS

Row = tuple[Any, ...]

GEMMS = {
    "qkv_proj": "qkv",
    "o_proj": "o",
    "gate_up_proj": "mlp up",
    "down_proj": "mlp down",
    "lm_head": "lm head",
}
"""Name of a layer in the grid -> of the product in :mod:`dynosim.hardware_models.timing.ops`."""


def write_tables(grid: Path, folder: Path, engine: ResolvedEngine) -> None:
    """Writes the grid of one (GPU, model, degree), measured for ``engine``, as own tables."""
    facts = read_yaml(grid.parent / "meta.yaml")
    folder.joinpath(HEADER).write_text(
        f"gpu: {engine.gpu.key}\nbackend: vllm\nversion: {facts['vllm_version']}\n"
        f"device: {facts['gpu']}\nsource: LLMServingSim profile of {facts['profiled_at'][:10]}\n"
    )
    gemms = {op.name: op for op in _products(engine)}
    layers = [*_read(grid / "dense.csv.gz"), *_read(grid / "per_sequence.csv.gz")]
    products = ((gemms[GEMMS[op]], m, us) for op, m, us in layers if op in GEMMS)
    _write(folder, "gemm", ((g.dtype, g.n, g.k, m, us) for g, m, us in products))
    _write(folder, "elementwise", _elementwise(layers, gemms, engine))
    heads = _heads(gemms, engine)
    attention = _read(grid / "attention.csv.gz")
    _write(folder, "batch_attention", ((*heads, *row) for row in attention))
    if facts["skew_fit"]["enabled"]:
        _write(folder, "uneven_decode", ((*heads, *row) for row in _uneven(grid, attention)))
    experts = [op for op in decompose(engine).tokens if isinstance(op, Experts)]
    if experts and (grid / "moe.csv.gz").is_file():
        _write(folder, "moe", _experts(grid, experts[0]))


def _products(engine: ResolvedEngine) -> Iterator[Gemm]:
    ops = decompose(engine)
    yield from (op for op in (*ops.tokens, *ops.logits) if isinstance(op, Gemm))


def _heads(gemms: dict[str, Gemm], engine: ResolvedEngine) -> Row:
    dim, q = engine.model.head_dim, gemms["o"].k
    kv = (gemms["qkv"].n - q) // 2
    return ("bfloat16", "bfloat16", dim, 0, kv // dim, q // dim)


def _elementwise(
    layers: list[Row], gemms: dict[str, Gemm], engine: ResolvedEngine
) -> Iterator[Row]:
    """Yields memory-bound kernels by what :mod:`.ops` says that they move per token.

    The norms of queries and keys were measured as one, and count as so many kernels as the engine
    runs; kernels that move as much as each other share one row, their mean.
    """
    hidden = engine.model.hidden_size
    moved = {
        "layernorm": 8 * hidden,
        "rotary_emb": 4 * gemms["qkv"].n,
        "embedding": 4 * hidden,
        "sampler": 12 * engine.model.vocab_size,
    }
    if "mlp up" in gemms:
        moved["act_fn"] = 2 * (gemms["mlp up"].n + gemms["mlp down"].k)
    kernels = max(1, engine.backend.query_key_norm_kernels)
    queries = gemms["o"].k
    moved["qk_norm"] = 2 * (gemms["qkv"].n + queries) // kernels
    found: dict[tuple[int, str], list[float]] = {}
    for op, m, us in layers:
        if op in moved:
            share = kernels if op == "qk_norm" else 1
            found.setdefault((moved[op], m), []).append(float(us) / share)
    for shape, times_us in found.items():
        yield *shape, sum(times_us) / len(times_us)


def _uneven(grid: Path, attention: list[Row]) -> Iterator[Row]:
    """Yields (sequences, mean, longest, us): t(mean) + alpha (t(longest) - t(mean)), by its fit.

    Of the fitted buckets those without prefill and with up to 15 % long sequences.
    """
    even = {(n, context): float(us) for chunk, _, n, context, us in attention if chunk == "0"}
    found: dict[str, list[float]] = {}
    for chunk, sequences, share, longest, _, alpha, _ in _read(grid / "skew_fit.csv.gz"):
        if chunk == "0" and share in ("sr<=5%", "sr<=15%") and longest == "kvB<=4k":
            found.setdefault(sequences.removeprefix("n<="), []).append(float(alpha))
    for n, alphas in found.items():
        mean_us, longest_us = even[n, "1024"], even[n, "4096"]
        yield n, 1024, 4096, mean_us + sum(alphas) / len(alphas) * (longest_us - mean_us)


def _experts(grid: Path, op: Experts) -> Iterator[Row]:
    """Yields expert blocks at as many activated experts as even routing is expected to reach."""
    by_tokens: dict[int, list[tuple[float, float]]] = {}
    for tokens, experts, us in _read(grid / "moe.csv.gz"):
        by_tokens.setdefault(int(tokens), []).append((float(experts), float(us)))
    b = op.block
    shape = (b.hidden_size, b.inter_size, b.topk, b.num_experts, b.moe_tp, b.moe_ep)
    for tokens, points in by_tokens.items():
        reached = b.num_experts * (1.0 - (1.0 - b.topk / b.num_experts) ** tokens)
        activated_us = np.array(sorted(points))
        us = float(np.interp(reached, activated_us[:, 0], activated_us[:, 1]))
        yield op.dtype, *shape, "balanced", tokens, us


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
