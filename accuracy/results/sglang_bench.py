"""``sglang.bench_serving --output-file``: JSON Lines, one run a line."""

from __future__ import annotations

from dynosim.accuracy.results import vllm_bench
from dynosim.accuracy.results.base import (
    Document,
    MeasuredRun,
    finite,
    measured,
    number,
    optional,
)

MEASURED = vllm_bench.MEASURED | {
    f"{statistic}_e2el_ms": (f"{statistic}_e2e_latency_ms", 1.0)
    for statistic in ("mean", "median", "p90", "p99")
}


def recognises(document: Document) -> bool:
    """Returns whether this is the tool's line."""
    return {"mean_e2e_latency_ms", "mean_ttft_ms", "total_input_tokens"} <= document.keys()


def read(document: Document, where: str) -> list[MeasuredRun]:
    """Returns the one run of a line."""
    completed = number(document, "completed", where)
    cap = optional(document, "max_concurrency")
    return [
        MeasuredRun(
            tool="sglang.bench_serving",
            where=where,
            num_prompts=int(completed),
            input_tokens=number(document, "total_input_tokens", where) / completed,
            output_tokens=number(document, "total_output_tokens", where) / completed,
            request_rate=finite(optional(document, "request_rate")),
            max_concurrency=int(cap) if cap else None,
            lengths=vllm_bench.lengths(document),
            measured=measured(document, MEASURED),
        )
    ]
