"""Result files: the flat JSON of ``vllm bench serve``, and one JSON line a request."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.metrics import Metrics, request_latencies_s
from dynosim.sim.results import RunResult
from dynosim.sim.simulate import Simulation, scheduler_name

Json = dict[str, object]
Columns = dict[str, list[int] | list[float | None]]

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
) -> Json:
    """Returns the flat result that existing plotters of ``vllm bench serve`` files read.

    Everything of ours (deployment, memory, sources, further metrics) stands under ``dynosim``.
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
    document["dynosim"] = {
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
        "metrics": {k: _json_number(v) for k, v in metrics.items() if k not in _BENCH_METRICS},
    }
    return document


def request_columns(result: RunResult) -> Columns:
    """Returns what is written of each request, in the workload's order; None for no such time."""
    times = {f"{k}_ms": v * 1e3 for k, v in request_latencies_s(result).items()}
    return {
        "request": list(range(len(result.workload))),
        "arrival_s": _rounded(result.sent_s),
        "input_tokens": result.workload.input_tokens.tolist(),
        "output_tokens": result.workload.output_tokens.tolist(),
        "replica": result.replica.tolist(),
        "cached_tokens": result.cached_tokens.tolist(),
        "preemptions": result.preemptions.tolist(),
        **{name: _rounded(values) for name, values in times.items()},
    }


def _rounded(values: FloatArray) -> list[float | None]:
    """Returns values to the nanosecond (ms) or finer, None for NaN."""
    return [None if v != v else v for v in np.round(values, 6).tolist()]


def write_json(path: Path, document: Json) -> None:
    """Writes one JSON document, whole or not at all."""
    _write_atomically(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_json_lines(path: Path, columns: Columns) -> None:
    """Writes one JSON object for every row of ``columns``, whole or not at all."""
    # Numbers are written as Python prints them, which is JSON; twice as fast as encoding rows.
    line = "{" + ", ".join(f"{json.dumps(name)}: %s" for name in columns) + "}\n"
    cells = (["null" if v is None else v for v in column] for column in columns.values())
    _write_atomically(path, "".join(map(line.__mod__, zip(*cells, strict=True))))


def _write_atomically(path: Path, text: str) -> None:
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
