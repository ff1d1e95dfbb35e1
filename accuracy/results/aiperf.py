"""AIPerf's ``profile_export_aiperf.json`` and GenAI-Perf's ``profile_export_genai_perf.json``.

Both call (E2EL - TTFT) / (output tokens - 1) the inter-token latency; the gaps between chunks are
AIPerf's ``inter_chunk_latency``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dynosim.accuracy.results.base import Document, MeasuredRun, measured, number, optional

_STATISTICS = {"mean": "avg", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_NAMES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_chunk_latency",
    "e2el": "request_latency",
}
MEASURED = {
    f"{ours}_{metric}_ms": (f"{name}.{theirs}", 1.0)
    for metric, name in _NAMES.items()
    for ours, theirs in _STATISTICS.items()
} | {
    "request_throughput": ("request_throughput.avg", 1.0),
    "output_throughput": ("output_token_throughput.avg", 1.0),
}
_CAPS = ("concurrency", "loadgen.concurrency", "perf_analyzer.stimulus.concurrency")
_RATES = ("request_rate", "loadgen.request_rate", "perf_analyzer.stimulus.request_rate")


def recognises(document: Document) -> bool:
    """Returns whether this is the tool's file."""
    return {"time_to_first_token", "request_latency", "input_config"} <= document.keys()


def read(document: Document, where: str) -> list[MeasuredRun]:
    """Returns the one run of a file."""
    config: Document = document["input_config"]
    loads = [*_phases(config), config]
    rate = _first(loads, ("rate", *_RATES))
    cap = _first(loads, _CAPS)
    counted = optional(document, "request_count.avg")
    return [
        MeasuredRun(
            tool="aiperf",
            where=where,
            num_prompts=int(counted or number(document, "request_latency.count", where)),
            input_tokens=number(document, "input_sequence_length.avg", where),
            output_tokens=number(document, "output_sequence_length.avg", where),
            request_rate=rate,
            burstiness=_burstiness(loads),
            max_concurrency=int(cap) if cap else None,
            measured=measured(document, MEASURED),
        )
    ]


def _phases(config: Document) -> Iterator[Document]:
    """Yields what is said of the load that was measured, not of the one that warmed up."""
    phases: Any = config.get("phases")
    for phase in phases if isinstance(phases, list) else []:
        if phase.get("kind") != "warmup":
            yield phase


def _first(loads: list[Document], paths: tuple[str, ...]) -> float | None:
    found = (optional(load, path) for load in loads for path in paths)
    return next((value for value in found if value), None)


def _burstiness(loads: list[Document]) -> float:
    """Returns the gamma shape of the arrivals; Poisson where nothing is said."""
    shape = _first(loads, ("burstiness", "loadgen.arrival_smoothness", "smoothness"))
    kinds = [load.get("type") or load.get("loadgen", {}).get("arrival_pattern") for load in loads]
    return float("inf") if "constant" in kinds else shape or 1.0
