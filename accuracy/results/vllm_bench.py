"""``vllm bench serve --save-result``: one flat JSON; lists a request with ``--save-detailed``.

Files of 2024 lack the burstiness, the cap of requests in flight and the failures.
"""

from __future__ import annotations

from dynosim.accuracy.results.base import (
    Document,
    MeasuredRun,
    finite,
    measured,
    number,
    optional,
)

_CENTRES = {
    f"{statistic}_{metric}_ms": (f"{statistic}_{metric}_ms", 1.0)
    for metric in ("ttft", "tpot", "itl", "e2el")
    for statistic in ("mean", "median", "p90", "p95", "p99")
}
MEASURED = _CENTRES | {
    "request_throughput": ("request_throughput", 1.0),
    "output_throughput": ("output_throughput", 1.0),
}


def recognises(document: Document) -> bool:
    """Returns whether this is the tool's file."""
    return {"model_id", "total_input_tokens", "mean_ttft_ms"} <= document.keys()


def read(document: Document, where: str) -> list[MeasuredRun]:
    """Returns the one run of a file."""
    completed = number(document, "completed", where)
    cap = optional(document, "max_concurrency")
    return [
        MeasuredRun(
            tool="vllm bench serve",
            where=where,
            model=document["model_id"],
            num_prompts=int(number(document, "num_prompts", where)),
            failed=int(optional(document, "failed") or 0),
            input_tokens=number(document, "total_input_tokens", where) / completed,
            output_tokens=number(document, "total_output_tokens", where) / completed,
            request_rate=finite(optional(document, "request_rate")),
            burstiness=optional(document, "burstiness") or 1.0,
            max_concurrency=int(cap) if cap else None,
            lengths=lengths(document),
            measured=measured(document, MEASURED),
        )
    ]


def lengths(document: Document) -> tuple[tuple[int, int], ...]:
    """Returns (prompt, answer) tokens of every request that was answered, () where not listed."""
    pairs = zip(document.get("input_lens") or (), document.get("output_lens") or (), strict=False)
    return tuple((int(i), int(o)) for i, o in pairs if i > 0 and o > 0)
