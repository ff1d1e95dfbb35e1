"""``guidellm run`` (and ``benchmark``): one JSON, a list of benchmarks.

Latencies of requests are in seconds, those of tokens in ms; what it calls inter-token latency is
TPOT, and its time per output token has the first one in it.
"""

from __future__ import annotations

from dynosim.accuracy.results.base import Document, MeasuredRun, measured, number, optional

_STATISTICS = {
    "mean": "mean",
    "median": "median",
    "p90": "percentiles.p90",
    "p95": "percentiles.p95",
    "p99": "percentiles.p99",
}
_NAMES = {
    "ttft": ("time_to_first_token_ms", 1.0),
    "tpot": ("inter_token_latency_ms", 1.0),
    "e2el": ("request_latency", 1e3),
}
MEASURED = {
    f"{ours}_{metric}_ms": (f"metrics.{name}.successful.{theirs}", factor)
    for metric, (name, factor) in _NAMES.items()
    for ours, theirs in _STATISTICS.items()
}


def recognises(document: Document) -> bool:
    """Returns whether this is the tool's file."""
    return isinstance(document.get("benchmarks"), list) and "metadata" in document


def read(document: Document, where: str) -> list[MeasuredRun]:
    """Returns the runs of a file, one a benchmark."""
    benchmarks = document["benchmarks"]
    return [_run(benchmark, f"{where}: benchmarks[{i}]") for i, benchmark in enumerate(benchmarks)]


def _run(benchmark: Document, where: str) -> MeasuredRun:
    strategy: Document = benchmark.get("config", {}).get("strategy", {})
    kind = strategy.get("type_")
    streams = optional(strategy, "streams")
    served = number(benchmark, "metrics.request_totals.successful", where)
    seconds = number(benchmark, "duration", where)
    return MeasuredRun(
        tool="guidellm",
        where=where,
        num_prompts=int(served),
        failed=int(optional(benchmark, "metrics.request_totals.errored") or 0),
        input_tokens=number(benchmark, "metrics.prompt_token_count.successful.mean", where),
        output_tokens=number(benchmark, "metrics.output_token_count.successful.mean", where),
        request_rate=optional(strategy, "rate") if kind in ("constant", "poisson") else None,
        burstiness=float("inf") if kind == "constant" else 1.0,
        max_concurrency=1 if kind == "synchronous" else int(streams) if streams else None,
        measured=measured(benchmark, MEASURED) | {"request_throughput": served / seconds},
    )
