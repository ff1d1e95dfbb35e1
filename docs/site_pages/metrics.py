"""Every metric of a run: name, unit, definition. The names are those that runs really give."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from dynosim.search.metric import LATENCIES, METRICS, STATISTICS, SYNONYMS
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics
from dynosim.sim.result_files import request_columns
from dynosim.sim.simulate import Simulation, simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec
from site_pages.markdown import code, table
from site_pages.meanings import explained
from site_pages.units import unit

ENGINE = Deployment(model="Qwen/Qwen3-0.6B", gpu="h100_sxm")
LOAD = WorkloadSpec(random_input_len=64, random_output_len=8, num_prompts=4)
KINDS = (
    (ENGINE, LOAD),
    (replace(ENGINE, prefill_replicas=1), LOAD),
    (replace(ENGINE, kv_host_gib=1.0), LOAD),
    (replace(ENGINE, speculative_method="ngram", num_speculative_tokens=2), LOAD),
    (replace(ENGINE, warm_replicas=1), LOAD),
    (replace(ENGINE, prefill_replicas=1, warm_replicas=1, kv_host_gib=1.0), LOAD),
    (
        ENGINE,
        WorkloadSpec(random_input_len=64, random_output_len=8, num_prompts=4, network_rtt_ms=20.0),
    ),
)
"""Small runs that between them have every part that a result may have."""


@cache
def runs() -> tuple[Simulation, ...]:
    """Returns the small runs, simulated."""
    return tuple(simulate(deployment, build_workload(load)) for deployment, load in KINDS)


@cache
def all_metrics() -> Metrics:
    """Returns every metric that any of the runs has."""
    found: Metrics = {}
    for run in runs():
        found |= run.metrics({"ttft": 100.0})
    return found


@cache
def all_request_columns() -> tuple[str, ...]:
    """Returns every column that a run may write of its requests."""
    found: dict[str, None] = {}
    for run in runs():
        found |= dict.fromkeys(request_columns(run.result))
    return tuple(found)


def latency_kinds() -> list[str]:
    """Returns what there are statistics of, in the order of results."""
    return [
        n.removeprefix("mean_").removesuffix("_ms")
        for n in all_metrics()
        if n.startswith("mean_") and n.endswith("_ms") and f"p99_{n[5:]}" in all_metrics()
    ]


def metrics_page() -> str:
    """Returns the reference of metrics."""
    kinds = latency_kinds()
    of_statistics = {f"{s}_{kind}_ms" for kind in kinds for s in STATISTICS}
    plain = [n for n in {**all_metrics(), **METRICS} if n not in of_statistics]
    searched = {f"{s}_{kind}_ms" for kind in LATENCIES for s in STATISTICS}
    plain = [n for n in plain if n not in searched]
    latencies = [(code(k), "ms", m) for k, m in explained("latencies", kinds)]
    rows = [
        (code(n), unit(n), _direction(n), meaning) for n, meaning in explained("metrics", plain)
    ]
    return (
        "# Metrics\n\n"
        "Names are those of `vllm bench serve` where it has one. Latencies are in ms, rates per\n"
        "second; what does not exist in a run is left out, or null in JSON. Tools define TPOT and\n"
        "ITL differently: the definitions below are vLLM's, and the [glossary](../glossary.md)\n"
        "has them in one line each.\n\n"
        "## Latencies\n\n"
        "Each has seven statistics over all completed requests (over all gaps for `itl`):\n"
        f"{', '.join(f'`{s}_…_ms`' for s in STATISTICS)}.\n\n"
        f"{table(('latency', 'unit', 'definition'), latencies)}\n"
        "## Everything else\n\n"
        "*Better* says which way a search goes that has the metric as an objective; a dash: it is\n"
        "a figure of the result and no objective.\n\n"
        f"{table(('metric', 'unit', 'better', 'definition'), rows)}\n"
        "## Other spellings\n\n"
        f"{table(('written', 'means'), [(code(a), code(b)) for a, b in SYNONYMS.items()])}"
    )


def _direction(name: str) -> str:
    metric = METRICS.get(name)
    return "–" if metric is None else {"maximize": "more", "minimize": "less"}[metric.better]
