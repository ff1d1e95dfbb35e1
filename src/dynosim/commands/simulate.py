"""``dynosim simulate``: one deployment under one workload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from dynosim.flags import Debug, Quiet, takes_fields_of
from dynosim.outputs import check_writable
from dynosim.question import read_question
from dynosim.search.stability import instability
from dynosim.sim.deployment import Deployment
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


@takes_fields_of(Deployment=Deployment, Workload=WorkloadSpec)
def simulate_command(
    file: File = None,
    /,
    *,
    goodput: Goodput = (),
    json: Json = None,
    requests_jsonl: Lines = None,
    quiet: Quiet = False,
    debug: Debug = False,
    **flags: Any,
) -> None:
    """Simulate one deployment under a workload: latency, throughput, goodput, cost."""
    if json is not None and requests_jsonl is None:
        requests_jsonl = json.with_suffix(".requests.jsonl")
    check_writable({"--json": json, "--requests-jsonl": requests_jsonl})
    question = read_question(file, flags, goodput)
    workload = build_workload(question.workload)
    simulation = simulate(question.deployment, workload, seed=question.seed)
    metrics = simulation.metrics(question.goodput_ms or None)
    if json is not None:
        rate = question.workload.request_rate
        document = bench_document(
            simulation,
            metrics,
            seed=question.seed,
            request_rate=float("inf") if rate is None else rate,
            burstiness=question.workload.burstiness,
        )
        write_json(json, document)
    if requests_jsonl is not None:
        write_json_lines(requests_jsonl, request_columns(simulation.result))
    print(summary(simulation, metrics, question.workload, question.goodput_ms))
    for warning in _warnings(simulation):
        print_note(f"warning: {warning}", quiet=quiet)


def _warnings(simulation: Simulation) -> list[str]:
    """Returns what the run itself warned of, and whether its mean means anything."""
    warnings = list(simulation.warnings)
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
