"""The metrics that a search may optimise or bound: name, unit, which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["maximize", "minimize"]

LATENCIES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2el": "E2E latency",
    "queue": "queue time",
    "prefill": "prefill time",
    "transfer": "KV transfer time",
}
STATISTICS = ("mean", "median", "std", "p50", "p90", "p95", "p99")

SYNONYMS = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "e2el",
    "e2e_latency": "e2el",
    "goodput": "request_goodput",
    "output_token_throughput": "output_throughput",
    "output_token_throughput_per_user": "output_tok_s_per_user",
    "output_token_throughput_per_gpu": "output_tok_s_per_gpu",
    "gpus": "num_gpus",
}
"""Spellings of other tools (AIPerf, GuideLLM) for the same quantity."""


@dataclass(frozen=True)
class Metric:
    """One figure of a trial: ``name`` as a result spells it, ``label`` as a person reads it."""

    name: str
    label: str
    unit: str
    better: Direction

    @property
    def axis(self) -> str:
        """Label with unit, for a figure."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def _plain(*rows: tuple[str, str, str, Direction]) -> dict[str, Metric]:
    return {name: Metric(name, label, unit, better) for name, label, unit, better in rows}


METRICS: dict[str, Metric] = _plain(
    ("output_tok_s_per_gpu", "Output throughput per GPU", "tok/s/GPU", "maximize"),
    ("output_tok_s_per_user", "Output speed per user", "tok/s/user", "maximize"),
    ("total_tok_s_per_gpu", "Total throughput per GPU", "tok/s/GPU", "maximize"),
    ("output_throughput", "Output throughput", "tok/s", "maximize"),
    ("total_token_throughput", "Total throughput", "tok/s", "maximize"),
    ("request_throughput", "Request throughput", "req/s", "maximize"),
    ("request_goodput", "Goodput", "req/s", "maximize"),
    ("prefix_hit_rate", "Prefix hit rate", "", "maximize"),
    ("usd_per_million_output_tokens", "Cost", "USD per million output tokens", "minimize"),
    ("joules_per_output_token", "Energy", "J per output token", "minimize"),
    ("mean_watts", "Power of the GPU boards", "W", "minimize"),
    ("quality", "Accuracy retained", "", "maximize"),
    ("slo_attainment", "Share of requests within SLO", "", "maximize"),
    ("busy_share", "Busy share of the engines", "", "maximize"),
    ("duration", "Duration", "s", "minimize"),
    ("preemptions", "Preemptions", "", "minimize"),
    ("kv_usage_peak", "Peak KV usage", "", "minimize"),
    ("kv_usage_mean", "Mean KV usage", "", "minimize"),
    ("num_gpus", "GPUs", "", "minimize"),
    ("usd_per_hour", "Cost", "USD/h", "minimize"),
) | {
    f"{statistic}_{kind}_ms": Metric(
        f"{statistic}_{kind}_ms", f"{statistic} {label}", "ms", "minimize"
    )
    for kind, label in LATENCIES.items()
    for statistic in STATISTICS
}


def statistic_name(value: object) -> str | None:
    """Returns ``99``, ``p99``, ``99.0`` or ``mean`` as a name of STATISTICS; None: no such one."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"p{value:g}"
    text = str(value).lower()
    return text if text in STATISTICS else None
