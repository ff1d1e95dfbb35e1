"""Runs picks under arrivals at a given rate: `open_loop.py OUT PYTHON` writes OUT/open_loop.json.

The picks that `dynosim verify` took from the frontier, at a share of the rate that they can do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from picks import TOP, prepared_run

from dynosim.sim.metrics import Metrics
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.verification.load.plan import WARM_UP, plan_load
from dynosim.verification.load.token_ids import TokenIds
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.measure import metrics_of
from dynosim.verification.prepared import Prepared
from dynosim.verification.target import Running, TargetOptions
from dynosim.verification.targets.vllm_in_process import VllmInProcess

SHARE = 0.7
REPEATS = 3
METRICS = ("median_e2el_ms", "median_ttft_ms", "median_tpot_ms", "mean_e2el_ms", "mean_ttft_ms")


def main(out: Path, python: str) -> None:
    """Measures in rounds and writes predictions beside what was measured."""
    prepared = prepared_run(out)
    load = open_load(prepared)
    found: dict[int, list[Metrics]] = {pick.number: [] for pick in prepared.picks[:TOP]}
    with ExitStack() as stack:
        engines = _started(stack, prepared, out, python)
        for repeat in range(1, REPEATS + 1):
            for number, engine in engines.items():
                found[number].append(_measured(engine, load, repeat))
                print(f"trial {number}, repeat {repeat}", flush=True)
    rows = [
        {
            "trial": pick.number,
            "predicted": _chosen(simulate(pick.trial.deployment, load, seed=0).metrics()),
            "measured": [_chosen(metrics) for metrics in found[pick.number]],
        }
        for pick in prepared.picks[:TOP]
    ]
    rate = len(load) / float(load.arrival_s[-1])
    document = {"request_rate": rate, "requests": len(load), "picks": rows}
    (out / "open_loop.json").write_text(json.dumps(document, indent=1) + "\n")


def open_load(prepared: Prepared) -> Workload:
    """Returns the load of the search, at a share of the rate that the slowest pick can do."""
    slowest = min(p.trial.metrics["request_throughput"] for p in prepared.picks[:TOP])
    rate = round(SHARE * slowest, 3)
    return build_workload(replace(prepared.spec, max_concurrency=None, request_rate=rate))


def plan_of(load: Workload, repeat: int) -> LoadPlan:
    """Returns what is sent in a repeat."""
    return plan_load(load, TokenIds(first=1000, end=31_000, seed=500 + repeat), warmup=WARM_UP)


def _started(stack: ExitStack, prepared: Prepared, out: Path, python: str) -> Mapping[int, Running]:
    engines = {}
    for pick in prepared.picks[:TOP]:
        options = TargetOptions(
            folder=out / "open_loop" / f"trial-{pick.number}",
            command=(python,),
            arguments=("--dtype", "float32"),
        )
        running = VllmInProcess(options).run(prepared.candidate(pick))
        engines[pick.number] = stack.enter_context(running)
    return engines


def _measured(engine: Running, load: Workload, repeat: int) -> Metrics:
    plan = plan_of(load, repeat)
    return metrics_of(engine.measure(plan), plan, {})


def _chosen(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(np.round(metrics[name], 4)) for name in METRICS}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
