"""``dynosim calibrate fit``: overheads of backends, from measured serving runs."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dynosim.accuracy.calibrate import (
    Calibrated,
    about_fit,
    calibrate,
    calibrate_own,
    write_document,
)
from dynosim.accuracy.case import Case
from dynosim.accuracy.learn_intervals import learn, write_model
from dynosim.accuracy.learn_shared_errors import learn_shared_errors, write_shared_errors
from dynosim.accuracy.measured_set import load_sets
from dynosim.accuracy.order_check import OrderBand, check_order
from dynosim.accuracy.predictions import Predictions
from dynosim.accuracy.result_file import case_of, read_results
from dynosim.accuracy.shared_errors import SHARED_FILE
from dynosim.flags import Debug, Json, Quiet
from dynosim.hardware_models.errors import UserError
from dynosim.outputs import check_writable
from dynosim.question import read_question
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.terminal import print_json, print_note, table

Results = Annotated[
    tuple[Path, ...],
    Parameter(
        name="--from",
        consume_multiple=True,
        negative=(),
        show_default=False,
        metavar="RESULT...",
        help="Result files of vllm bench serve, sglang.bench_serving, AIPerf, GenAI-Perf, "
        "GuideLLM, inference-perf or dynosim verify, all of one deployment.",
    ),
]
DeploymentFile = Annotated[
    Path | None,
    Parameter(
        name="--deployment",
        metavar="FILE",
        help="YAML file of what served those runs, as for `dynosim simulate`; lengths or a trace "
        "of its `workload` stand for those of the runs.",
    ),
]
Data = Annotated[
    Path | None,
    Parameter(metavar="DIR", help="Fit to the measured sets in this folder instead."),
]
Sets = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        consume_multiple=True,
        negative=(),
        show_default=False,
        metavar="NAME...",
        help="Only these measured sets.",
    ),
]
Sample = Annotated[
    int, Parameter(metavar="INT", help="At most this many cases of a class, groups in turn.")
]
Jobs = Annotated[
    int | None, Parameter(metavar="INT", help="Processes that simulate; by default one a CPU.")
]
Output = Annotated[
    Path, Parameter(alias="-o", metavar="FILE", help="Where to write the overheads.")
]
Residuals = Annotated[
    Path | None,
    Parameter(
        metavar="FILE",
        help="Write what held-out errors say of intervals here, and how errors go together into "
        f"{SHARED_FILE.name} beside it.",
    ),
]
Resume = Annotated[
    Path | None,
    Parameter(
        metavar="FILE",
        help="Keep predictions here, and take up those of a run that was interrupted; remove it "
        "when dynosim has changed.",
    ),
]


def calibrate_fit_command(
    *,
    results: Results = (),
    deployment: DeploymentFile = None,
    data: Data = None,
    set: Sets = (),
    sample: Sample = 40,
    jobs: Jobs = None,
    output: Output = Path("calibration.yaml"),
    residuals: Residuals = None,
    resume: Resume = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit the overheads of a backend to measured runs; `--calibration FILE` then uses them."""
    gc.enable()
    check_writable({"--output": output, "--residuals": residuals, "--resume": resume})
    predictions = Predictions(jobs=jobs or os.cpu_count() or 1, file=resume)

    def tell(line: str) -> None:
        print_note(line, quiet=quiet)

    if results:
        found = calibrate_own(_own_cases(results, deployment), predictions, tell)
        sources = [path.name for path in results]
        asked = ["--deployment", deployment.name if deployment else "", "--from", *sources]
    elif data is not None or set:
        sets = load_sets(data, set)
        cases = [case for measured in sets for case in measured.cases]
        found = calibrate(cases, predictions, size=sample, tell=tell)
        sources = [measured.name for measured in sets]
        asked = ["--data", "DATA", "--set", *sources, "--sample", str(sample)]
    else:
        raise UserError("nothing to fit to", where="--from", hint="give result files, or --data")
    command = ["dynosim", "calibrate", "fit", *asked]
    document = found.document(about_fit(command, sources))
    write_document(document, output)
    if residuals is not None:
        write_model(learn(found.residuals), residuals)
        together = learn_shared_errors(found.residuals)
        write_shared_errors(together, residuals.with_name(SHARED_FILE.name))
    if json:
        print_json(document | {"skipped": list(found.skipped), "written_to": str(output)})
    else:
        print("\n".join(as_text(found)))
        if residuals is not None:
            print("\n".join(order_text(check_order(found.residuals))))
    print_note(f"written to {output}; use it with --calibration {output}", quiet=quiet)


def _own_cases(results: Sequence[Path], deployment: Path | None) -> list[Case]:
    if deployment is None:
        raise UserError("what served these runs?", where="--deployment", hint="give its YAML file")
    question = read_question(str(deployment), {})
    says_nothing = question.workload == WorkloadSpec(seed=question.workload.seed)
    load = None if says_nothing else question.workload
    runs = [run for path in results for run in read_results(path)]
    return [case_of(run, question.deployment, load) for run in runs]


def as_text(found: Calibrated) -> list[str]:
    """Returns one screen: errors before and after on held-out groups, and the overheads."""
    header = ("class", "metric", "held out", "n", "before", "after")
    cells = []
    for report in found.classes:
        for name, errors in (("fold", report.held_out), ("half", report.judged)):
            cells += [
                [
                    report.fitted.subject.name,
                    quantity,
                    name,
                    f"{row['points']:,}",
                    f"{row['before']:.1%}",
                    f"{row['after']:.1%}",
                ]
                for quantity, row in errors.items()
            ]
    lines = [table(header, cells, left=3)] if cells else []
    for report in found.classes:
        figures = ", ".join(f"{k} {v:g}" for k, v in report.fitted.figures.items())
        lines.append(f"{report.fitted.subject.name}: {figures or 'as the card has them'}")
    return [*lines, *(f"not fitted: {reason}" for reason in found.skipped)]


def order_text(bands: Sequence[OrderBand]) -> list[str]:
    """Returns how often pairs under one load were in the order that predictions say."""
    header = ("metric", "pairs of", "pairs", "said", "found")
    cells = [
        [
            band.quantity,
            "one stack" if band.is_one_stack else "two stacks",
            f"{band.pairs:,}",
            f"{band.stated:.0%}",
            f"{band.found:.0%}",
        ]
        for band in bands
    ]
    return [table(header, cells, left=2)] if cells else []
