"""``dynosim simulate``: one deployment under one workload."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from dynosim.accuracy.expectation import Expectation, expect
from dynosim.flags import Debug, Quiet, takes_fields_of
from dynosim.hardware_models.errors import UserError
from dynosim.outputs import check_writable
from dynosim.question import Question, read_question
from dynosim.search.stability import instability
from dynosim.sim.bottleneck.report import Bottleneck, bottleneck
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics
from dynosim.sim.result_files import bench_document, request_columns, write_json, write_json_lines
from dynosim.sim.simulate import Simulation, simulate
from dynosim.sim.timeline.timeline import LIMIT, timeline, write_timeline
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.summary import summary, widenings
from dynosim.terminal import print_json, print_note

if TYPE_CHECKING:
    from dynosim.sim.bottleneck.what_if import Widening
    from dynosim.sim.replicates import Estimate

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
        "a request (OUT with .requests.jsonl); `--json=-` prints it instead of the summary.",
    ),
]
Lines = Annotated[
    Path | None, Parameter(metavar="OUT", help="Write the lines of requests to this file.")
]

STDOUT = Path("-")

Replicates = Annotated[
    int,
    Parameter(
        metavar="INT",
        help="Simulate this many seeds, from --seed on, and show the standard error of the means; "
        "deployments simulated with the same seeds see the same loads.",
    ),
]


WhatIf = Annotated[
    bool,
    Parameter(
        name="--what-if",
        negative=(),
        help="Simulate again with each resource made 25 % wider, one at a time, and show what that "
        "changes; capacity is requests/s with all of them there at once.",
    ),
]


TimelineFile = Annotated[
    Path | None,
    Parameter(
        name="--timeline",
        metavar="OUT",
        help="Write the run as Chrome trace events, which ui.perfetto.dev opens: steps, what bound "
        "them, requests, queues and KV use of every replica.",
    ),
]
TimelineLimit = Annotated[
    int, Parameter(metavar="INT", help="At most this many events, those that begin first.")
]
SeriesFile = Annotated[
    Path | None,
    Parameter(
        name="--series",
        metavar="OUT",
        help="Write every engine's gauges and counters over time under vLLM's Prometheus names, as "
        "CSV, or as JSON where OUT ends in .json.",
    ),
]
SeriesInterval = Annotated[
    float, Parameter(metavar="SECONDS", help="Seconds between the rows of --series.")
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
    widen: WhatIf = False,
    timeline_file: TimelineFile = None,
    timeline_limit: TimelineLimit = LIMIT,
    series_file: SeriesFile = None,
    series_interval_s: SeriesInterval = 1.0,
    quiet: Quiet = False,
    debug: Debug = False,
    **flags: Any,
) -> None:
    """Simulate one deployment under a workload: latency, throughput, goodput, cost."""
    is_printed = json == STDOUT
    if json is not None and requests_jsonl is None and not is_printed:
        requests_jsonl = json.with_suffix(".requests.jsonl")
    file_of_json = None if is_printed else json
    files = {"--json": file_of_json, "--requests-jsonl": requests_jsonl}
    check_writable(files | {"--timeline": timeline_file, "--series": series_file})
    for name, number in {"--replicates": replicates, "--timeline-limit": timeline_limit}.items():
        if number < 1:
            raise UserError(f"found {number}", where=name, hint="allowed: >= 1")
    question = read_question(file, flags, goodput)
    workload = build_workload(question.workload)
    simulation = simulate(question.deployment, workload, seed=question.seed)
    metrics = simulation.metrics(question.goodput_ms or None)
    expectation = expect(simulation, metrics)
    bound = bottleneck(simulation)
    wider = _widened(simulation, question.seed) if widen and bound else []
    spread = _spread(metrics, question, replicates) if replicates > 1 else {}
    if json is not None:
        more = _more(expectation, spread, replicates) | _bound_by(bound, wider)
        document = _document(question, simulation, metrics, more)
        print_json(document) if is_printed else write_json(json, document)
    if requests_jsonl is not None:
        write_json_lines(requests_jsonl, request_columns(simulation.result))
    if series_file is not None:
        _write_series(series_file, simulation, series_interval_s)
    if timeline_file is not None:
        _write_timeline(timeline_file, simulation, bound, timeline_limit, quiet=quiet)
    if not is_printed:
        load, limits_ms = question.workload, question.goodput_ms
        print(summary(simulation, metrics, load, limits_ms, expectation, spread, bound))
        if wider:
            print(f"\n{widenings(wider)}")
    for warning in _warnings(simulation):
        print_note(f"warning: {warning}", quiet=quiet)


def _document(
    question: Question, simulation: Simulation, metrics: Metrics, more: dict[str, Any]
) -> dict[str, Any]:
    load = question.workload
    return bench_document(
        simulation,
        metrics,
        seed=question.seed,
        request_rate=math.inf if load.request_rate is None else load.request_rate,
        burstiness=load.burstiness,
        more=more,
    )


def _widened(simulation: Simulation, seed: int) -> list[Widening]:
    from dynosim.sim.bottleneck.what_if import what_if

    return what_if(simulation, seed=seed)


def _spread(metrics: Metrics, question: Question, replicates: int) -> dict[str, Estimate]:
    """Returns estimates from the metrics of the first seed and of those after it."""
    from dynosim.sim.replicates import estimates, replicate

    seeds = range(question.seed + 1, question.seed + replicates)
    slos_ms = question.goodput_ms or None
    more = replicate(question.deployment, question.workload, seeds=seeds, slos_ms=slos_ms)
    return estimates([metrics, *more])


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


def _write_series(path: Path, simulation: Simulation, interval_s: float) -> None:
    from dynosim.sim.timeline.series import series, write_series

    write_series(path, series(simulation.result, interval_s))


def _write_timeline(
    path: Path, simulation: Simulation, bound: Bottleneck | None, limit: int, *, quiet: bool
) -> None:
    attribution = None if bound is None else bound.attribution
    found = timeline(simulation.result, attribution, limit=limit)
    write_timeline(path, found)
    if found.dropped:
        print_note(
            f"note: --timeline-limit {limit:,} leaves {found.dropped:,} slices out; it is "
            f"complete up to {found.complete_until_s:,.1f} s",
            quiet=quiet,
        )


def _bound_by(bound: Bottleneck | None, wider: list[Widening]) -> dict[str, Any]:
    """Returns what the JSON says of resources: how each was used, what more of it would change."""
    if bound is None:
        return {}
    more: dict[str, Any] = {"bottleneck": bound.document()}
    if wider:
        more["what_if"] = [
            {
                "resource": one.resource,
                "change": one.change,
                "capacity": one.capacity,
                **{name: change for name, change in one.changes.items() if math.isfinite(change)},
            }
            for one in wider
        ]
    return more


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
    if result.workload.is_open and diverges > 0:
        warnings.append(
            "requests arrive faster than they are served: the queue grows for as long as the "
            "load lasts, and latencies say more about the length of the run than about the "
            "deployment"
        )
    return warnings
