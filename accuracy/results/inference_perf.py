"""inference-perf's ``stage_N_lifecycle_metrics.json``: latencies in seconds, one stage a file.

Its times between tokens count chunks of the stream, of which servers send one, two or half a one
for each token (its demo reports show half the true figure), so TPOT is worked out from the means.
"""

from __future__ import annotations

from dynosim.accuracy.results.base import Document, MeasuredRun, measured, number, optional

_STATISTICS = {"mean": "mean", "median": "median", "p90": "p90", "p95": "p95", "p99": "p99"}
_NAMES = {
    "ttft": "time_to_first_token",
    "e2el": "request_latency",
}
MEASURED = {
    f"{ours}_{metric}_ms": (f"successes.latency.{name}.{theirs}", 1e3)
    for metric, name in _NAMES.items()
    for ours, theirs in _STATISTICS.items()
} | {
    "request_throughput": ("successes.throughput.requests_per_sec", 1.0),
    "output_throughput": ("successes.throughput.output_tokens_per_sec", 1.0),
}


def recognises(document: Document) -> bool:
    """Returns whether this is the tool's file."""
    return {"load_summary", "successes"} <= document.keys()


def read(document: Document, where: str) -> list[MeasuredRun]:
    """Returns the one run of a stage. Arrivals are taken as evenly spaced, the tool's default."""
    found = measured(document, MEASURED)
    tokens = number(document, "successes.output_len.mean", where)
    if tokens > 1 and {"mean_e2el_ms", "mean_ttft_ms"} <= found.keys():
        found["mean_tpot_ms"] = (found["mean_e2el_ms"] - found["mean_ttft_ms"]) / (tokens - 1)
    return [
        MeasuredRun(
            tool="inference-perf",
            where=where,
            num_prompts=int(number(document, "load_summary.count", where)),
            failed=int(optional(document, "failures.count") or 0),
            input_tokens=number(document, "successes.prompt_len.mean", where),
            output_tokens=tokens,
            request_rate=optional(document, "load_summary.achieved_rate"),
            burstiness=float("inf"),
            measured=found,
        )
    ]
