"""What was observed, as statistics and on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dynosim.accuracy.results import observed as reader
from dynosim.accuracy.results.base import MeasuredRun
from dynosim.hardware_models.errors import UserError
from dynosim.sim.result_files import write_atomically
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRequest, ObservedRun

_DIGITS = 9
"""Times are kept to the nanosecond."""


def measured_run(
    run: ObservedRun, plan: LoadPlan, *, model: str | None = None, where: str = "what was observed"
) -> MeasuredRun:
    """Returns the statistics of a run, in ms and per second, as its file is read back.

    Failed requests are left out and counted. Raises UserError where none was answered.
    """
    (found,) = reader.read(_document(run, plan, model), where)
    return found


def write_observed(
    path: Path, run: ObservedRun, plan: LoadPlan, *, model: str | None = None
) -> None:
    """Writes a run as JSON, a request a line, whole or not at all; equal runs give equal bytes."""
    document = _document(run, plan, model)
    requests = document.pop("requests")
    head = json.dumps(document, indent=1, allow_nan=False).removesuffix("\n}")
    lines = ",\n".join("  " + json.dumps(row, allow_nan=False) for row in requests)
    write_atomically(path, f'{head},\n "requests": [\n{lines}\n ]\n}}\n')


def read_observed(path: Path) -> ObservedRun:
    """Returns the run that a file holds; UserError where it holds none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return ObservedRun(
            requests=tuple(ObservedRequest(**row) for row in document["requests"]),
            duration_s=document["duration_s"],
            clock=document["clock"],
            notes=tuple(document["notes"]),
            facts=document["facts"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"no observed run: {error}", where=str(path)) from error


def _document(run: ObservedRun, plan: LoadPlan, model: str | None) -> dict[str, Any]:
    return {
        reader.FORMAT: reader.VERSION,
        "model": model,
        "clock": run.clock,
        "duration_s": run.duration_s,
        "max_concurrency": plan.max_concurrency,
        "notes": list(run.notes),
        "facts": _sorted(run.facts),
        "requests": [_row(request) for request in run.requests],
    }


def _sorted(facts: Mapping[str, float | str]) -> dict[str, float | str]:
    return dict(sorted(facts.items()))


def _row(request: ObservedRequest) -> dict[str, Any]:
    times = {"planned_s": request.planned_s, "sent_s": request.sent_s}
    return {
        **asdict(request),
        **{name: round(float(at_s), _DIGITS) for name, at_s in times.items()},
        "token_s": [round(float(at_s), _DIGITS) for at_s in request.token_s],
    }
