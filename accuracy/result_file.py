"""Reads result files of benchmark tools, and makes cases of the runs in them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dynosim.accuracy.case import Case
from dynosim.accuracy.results.base import MeasuredRun
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module, module_names
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec

_TOOLS = "dynosim.accuracy.results"


def read_results(path: Path) -> list[MeasuredRun]:
    """Returns the runs in a file, JSON or JSON Lines, plain or ``.gz``.

    Raises UserError, with file and line, for what is no JSON or of no known tool.
    """
    return [run for where, document in _documents(path) for run in _runs(document, where)]


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read: {error}", where=str(path)) from error
    try:
        yield str(path), json.loads(text)
        return
    except json.JSONDecodeError as error:
        whole = error
    for number, line in enumerate(text.splitlines(), 1):
        try:
            if line.strip():
                yield f"{path}:{number}", json.loads(line)
        except json.JSONDecodeError:
            message = f"neither JSON nor JSON Lines: {whole.msg}"
            raise UserError(message, where=f"{path}:{whole.lineno}") from None


def _runs(document: Any, where: str) -> list[MeasuredRun]:
    if isinstance(document, dict):
        for name in module_names(_TOOLS):
            tool = find_module(_TOOLS, "tool", name)
            if tool.recognises(document):
                runs: list[MeasuredRun] = tool.read(document, where)
                return runs
    known = ", ".join(module_names(_TOOLS))
    raise UserError("a result file of no known tool", where=where, hint=f"known: {known}")


def case_of(run: MeasuredRun, deployment: Deployment, spec: WorkloadSpec | None = None) -> Case:
    """Returns the case of a run on ``deployment``.

    Pace, cap and number of requests are the run's. Lengths are those of ``spec`` where it says
    them, else those listed in the file, else the file's means for every request. Raises UserError
    for a run without a latency or a rate to go by.
    """
    if not run.measured:
        raise UserError("no latency and no rate in it", where=run.where)
    return Case(
        set=run.tool,
        group=Path(run.where.partition(": ")[0]).name,
        row=run.where,
        deployment=deployment,
        workload=_workload(run, spec),
        measured=run.measured,
        assumed=() if spec or run.lengths else ("every request has the mean lengths",),
    )


def _workload(run: MeasuredRun, spec: WorkloadSpec | None) -> WorkloadSpec | Workload:
    pace = {
        "request_rate": run.request_rate,
        "burstiness": run.burstiness if run.request_rate else 1.0,
        "max_concurrency": run.max_concurrency,
        "num_prompts": run.num_prompts,
    }
    if spec is not None and spec.trace is not None:
        return replace(spec, max_concurrency=run.max_concurrency)
    if spec is not None:
        return replace(spec, **pace)  # type: ignore[arg-type]
    means = WorkloadSpec(
        random_input_len=max(1, round(run.input_tokens)),
        random_output_len=max(1, round(run.output_tokens)),
        **pace,  # type: ignore[arg-type]
    )
    return _with_lengths(build_workload(means), run) if run.lengths else means


def _with_lengths(load: Workload, run: MeasuredRun) -> Workload:
    """Returns a load with the lengths and arrivals that the file lists, one after the other."""
    listed = np.array(run.lengths, dtype=np.int64)
    inputs, outputs = listed[np.arange(len(load)) % len(listed)].T
    arrival_s = np.array(run.arrival_s) if run.arrival_s else load.arrival_s
    return replace(
        load, arrival_s=arrival_s, input_tokens=inputs.copy(), output_tokens=outputs.copy()
    )
