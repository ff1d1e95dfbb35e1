"""Result files: the flat JSON of ``vllm bench serve``, and one JSON line a request."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.sim.engine_limits import scheduler_name
from dynosim.sim.metrics import Metrics, request_latencies_s
from dynosim.sim.results import RunResult
from dynosim.sim.simulate import Simulation

Json = dict[str, object]
Columns = Mapping[str, IntArray | FloatArray]

# Names and order of `vllm bench serve` (0.33); ours follow under one key of their own.
_STATISTICS = tuple(
    f"{s}_{m}_ms"
    for m in ("ttft", "tpot", "itl", "e2el")
    for s in ("mean", "median", "std", "p50", "p90", "p95", "p99")
)
_BENCH_METRICS = (
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
    "max_concurrent_requests",
    *_STATISTICS,
)


def bench_document(
    simulation: Simulation,
    metrics: Metrics,
    *,
    seed: int,
    request_rate: float = math.inf,
    burstiness: float = 1.0,
    more: Json | None = None,
) -> Json:
    """Returns the flat result that existing plotters of ``vllm bench serve`` files read.

    Everything of ours (deployment, memory, sources, further metrics, and ``more``) stands under
    ``dynosim``.
    Carries no date, so that equal inputs give equal bytes. NaN becomes null.
    """
    workload = simulation.result.workload
    args = simulation.engine.args
    document: Json = {
        "backend": args.backend,
        "label": f"dynosim-{args.backend}",
        "model_id": simulation.engine.model.name,
        "tokenizer_id": simulation.engine.model.name,
        "num_prompts": len(workload),
        "request_rate": "inf" if math.isinf(request_rate) else request_rate,
        "burstiness": burstiness,
        "max_concurrency": workload.max_concurrency,
    }
    document |= {name: _json_number(metrics[name]) for name in _BENCH_METRICS}
    own: Json = {
        "deployment": asdict(simulation.deployment),
        "engine": asdict(args),
        "backend_version": simulation.engine.backend.version,
        "gpu": simulation.engine.gpu.key,
        "scheduler": scheduler_name(args.backend),
        "kv_cache_tokens": simulation.memory.kv_cache_tokens,
        "workload": workload.name,
        "seed": seed,
        "sources": [asdict(source) for source in simulation.timer.sources],
        "warnings": list(simulation.warnings),
        **_prefill(simulation),
        **(more or {}),
        "metrics": {k: _json_number(v) for k, v in metrics.items() if k not in _BENCH_METRICS},
    }
    if (speculation := simulation.engine.speculation) is not None:
        own["speculation"] = {
            "method": speculation.method,
            "num_speculative_tokens": speculation.num_tokens,
            "acceptance": list(speculation.acceptance),
        }
    return document | {"dynosim": own}


def _prefill(simulation: Simulation) -> Json:
    """Returns what there is to say of a prefill pool; nothing where there is none."""
    pool, hand_overs = simulation.prefill, simulation.result.hand_overs
    if pool is None or hand_overs is None:
        return {}
    return {
        "prefill": {
            "engine": asdict(pool.engine.args),
            "gpu": pool.engine.gpu.key,
            "kv_cache_tokens": pool.memory.kv_cache_tokens,
            "sources": [asdict(source) for source in pool.timer.sources],
        },
        "links": [
            {name: _json_number(value) for name, value in asdict(link).items()}
            for link in hand_overs.links
        ],
    }


def request_columns(result: RunResult) -> Columns:
    """Returns what is written of each request, in the workload's order; NaN for no such time."""
    hand_overs = result.hand_overs
    prefill = {} if hand_overs is None else {"prefill_replica": hand_overs.replica}
    times = {f"{k}_ms": v * 1e3 for k, v in request_latencies_s(result).items()}
    return {
        "request": np.arange(len(result.workload)),
        "arrival_s": result.sent_s,
        "input_tokens": result.workload.input_tokens,
        "output_tokens": result.workload.output_tokens,
        "replica": result.replica,
        **prefill,
        "cached_tokens": result.cached_tokens,
        "preemptions": result.preemptions,
        **times,
    }


def write_json(path: Path, document: Json) -> None:
    """Writes one JSON document, whole or not at all."""
    write_atomically(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_json_lines(path: Path, columns: Columns) -> None:
    """Writes one JSON object for every row of ``columns``, whole or not at all.

    Six decimals (nanoseconds, of a column in ms) are less work than the shortest form of a float.
    NaN becomes null.
    """
    forms, cells = zip(*map(_form, columns.values()), strict=True)
    pairs = [f"{json.dumps(name)}: {form}" for name, form in zip(columns, forms, strict=True)]
    line = f"{{{', '.join(pairs)}}}\n"
    write_atomically(path, "".join(map(line.__mod__, zip(*cells, strict=True))))


def _form(column: IntArray | FloatArray) -> tuple[str, list[int] | list[float] | list[str]]:
    """Returns how the values of a column are written, and the values."""
    if column.dtype.kind != "f":
        return "%d", column.tolist()
    if np.isnan(column).any():
        return "%s", ["null" if v != v else f"{v:.6f}" for v in column.tolist()]
    return "%.6f", column.tolist()


def write_atomically(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def _json_number(value: object) -> object:
    if isinstance(value, float | np.floating):
        number = float(value)
        if not math.isfinite(number):
            return None
        # Twelve significant digits: the same text whatever the platform's last bit says.
        return float(f"{number:.12g}")
    return value
