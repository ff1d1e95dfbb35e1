"""``dynosim simulate``: one deployment under one workload."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from dynosim.accuracy.expectation import Expectation, expect
from dynosim.flags import Debug, Quiet, takes_fields_of
from dynosim.hardware_models.errors import UserError
from dynosim.outputs import check_writable
from dynosim.question import Question, read_question
from dynosim.search.stability import instability
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics
from dynosim.sim.replicates import Estimate, estimates, replicate
from dynosim.sim.result_files import bench_document, request_columns, write_json, write_json_lines
from dynosim.sim.simulate import Simulation, simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.summary import summary
from dynosim.terminal import print_note

File = Annotated[
    str | None,
    Parameter(help="YAML file with the fields below as keys; flags override it.", metavar="FILE"),
]
Goodput = Annotated[
    tuple[str, ...],
    Parameter(
        consume_multiple=True,
        negative=(),
        show_default=False,
        metavar="KIND:MS...",
        help="Limits that a good request keeps: `ttft:500 tpot:50 e2el:5000` in ms.",
    ),
]
Json = Annotated[
    Path | None,
    Parameter(
        metavar="OUT",
        help="Write the result in the flat layout of `vllm bench serve`, and beside it one line "
        "a request (OUT with .requests.jsonl).",
    ),
]
Lines = Annotated[
    Path | None, Parameter(metavar="OUT", help="Write the lines of requests to this file.")
]


Replicates = Annotated[
    int,
    Parameter(
        metavar="INT",
        help="Simulate this many seeds, from --seed on, and show the standard error of the means; "
        "deployments simulated with the same seeds see the same loads.",
    ),
]


@takes_fields_of(Deployment=Deployment, Workload=WorkloadSpec)
def simulate_command(
    file: File = None,
    /,
    *,
    goodput: Goodput = (),
    json: Json = None,
    requests_jsonl: Lines = None,
    replicates: Replicates = 1,
    quiet: Quiet = False,
    debug: Debug = False,
    **flags: Any,
) -> None:
    """Simulate one deployment under a workload: latency, throughput, goodput, cost."""
    if json is not None and requests_jsonl is None:
        requests_jsonl = json.with_suffix(".requests.jsonl")
    check_writable({"--json": json, "--requests-jsonl": requests_jsonl})
    if replicates < 1:
        raise UserError(f"found {replicates}", where="--replicates", hint="allowed: >= 1")
    question = read_question(file, flags, goodput)
    workload = build_workload(question.workload)
    simulation = simulate(question.deployment, workload, seed=question.seed)
    metrics = simulation.metrics(question.goodput_ms or None)
    expectation = expect(simulation, metrics)
    spread = estimates([metrics, *_further(question, replicates)]) if replicates > 1 else {}
    if json is not None:
        rate = question.workload.request_rate
        document = bench_document(
            simulation,
            metrics,
            seed=question.seed,
            request_rate=float("inf") if rate is None else rate,
            burstiness=question.workload.burstiness,
            more=_more(expectation, spread, replicates),
        )
        write_json(json, document)
    if requests_jsonl is not None:
        write_json_lines(requests_jsonl, request_columns(simulation.result))
    lines = summary(
        simulation, metrics, question.workload, question.goodput_ms, expectation, spread
    )
    print(lines)
    for warning in _warnings(simulation):
        print_note(f"warning: {warning}", quiet=quiet)


def _further(question: Question, replicates: int) -> list[Metrics]:
    """Returns the metrics of the seeds after the first."""
    seeds = range(question.seed + 1, question.seed + replicates)
    slos_ms = question.goodput_ms or None
    return replicate(question.deployment, question.workload, seeds=seeds, slos_ms=slos_ms)


def _more(
    expectation: Expectation, spread: Mapping[str, Estimate], replicates: int
) -> dict[str, Any]:
    """Returns what the JSON says of errors: of the model, and of the draw."""
    more = expectation.document()
    if not spread:
        return more
    known = {k: v for k, v in spread.items() if math.isfinite(v.mean + v.standard_error)}
    return more | {
        "replicates": {
            "seeds": replicates,
            "mean": {k: v.mean for k, v in known.items()},
            "standard_error": {k: v.standard_error for k, v in known.items()},
        }
    }


def _warnings(simulation: Simulation) -> list[str]:
    """Returns what the run itself warned of, and whether its mean means anything."""
    warnings = list(simulation.warnings)
    if idle := simulation.deployment.idle_scaling_fields:
        needed = "an autoscaler, warm_replicas or failures"
        warnings.append(f"without {needed} there is no use for {', '.join(idle)}")
    if idle := simulation.deployment.idle_fields:
        warnings.append(f"without prefill_replicas there is no use for {', '.join(idle)}")
    result = simulation.result
    done = np.flatnonzero(result.completed)
    diverges = instability(result.sent_s[done], result.scheduled_s[done], result.finish_s[done])
    if result.workload.max_concurrency is None and diverges > 0:
        warnings.append(
            "requests arrive faster than they are served: the queue grows for as long as the "
            "load lasts, and latencies say more about the length of the run than about the "
            "deployment"
        )
    return warnings
