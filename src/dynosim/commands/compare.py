"""``dynosim compare``: results side by side."""

from __future__ import annotations

import math
from typing import Annotated, Any

from cyclopts import Parameter

from dynosim.flags import Debug, Json, Quiet
from dynosim.hardware_models.errors import UserError
from dynosim.planning.comparison import Comparison, Row, compare, read_result
from dynosim.terminal import print_json, print_note, table

Run = Annotated[
    str,
    Parameter(
        metavar="RUN...",
        help="Result files (of dynosim, vllm bench, AIPerf, GenAI-Perf, GuideLLM, inference-perf, "
        "SGLang), or a search's folder: DIR is its knee, DIR:cheapest, DIR:12 its trial 12.",
    ),
]
All = Annotated[
    bool,
    Parameter(
        name="--all", negative=(), show_default=False, help="Show every metric that all report."
    ),
]


def compare_command(
    *runs: Run,
    everything: All = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare two or more results: metrics, change against the first, winner."""
    results = [result for run in runs for result in read_result(run)]
    if len(results) < 2:
        raise UserError(
            f"found {len(results)} result(s)", where="RUN", hint="allowed: two or more to compare"
        )
    found = compare(results, everything=everything)
    if json:
        print_json(as_json(found))
    else:
        print("\n".join(as_text(found)))
    for note in found.notes:
        print_note(f"note: {note}", quiet=quiet)


def as_text(found: Comparison) -> list[str]:
    """Returns one table of metrics, and one of what differs between the deployments."""
    names = [result.name for result in found.results]
    header = ["", names[0], *(word for name in names[1:] for word in (name, "change")), "best"]
    rows = [_row(row, names) for row in found.rows]
    wins = ", ".join(f"{name} {count}" for name, count in zip(names, found.wins, strict=True))
    lines = [table(header, rows), "", f"Best in: {wins} (of {len(found.rows)} metrics)"]
    if found.differences:
        cells = [[field, *values] for field, values in found.differences.items()]
        lines += ["", table(["Differs in", *names], cells)]
    return lines


def _row(row: Row, names: list[str]) -> list[str]:
    cells = [row.label, _figure(row.values[0])]
    for index in range(1, len(row.values)):
        change = row.change(index)
        cells += [_figure(row.values[index]), "–" if math.isnan(change) else f"{change:+.1%}"]
    return [*cells, "–" if row.best is None else names[row.best]]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def as_json(found: Comparison) -> dict[str, Any]:
    """Returns the comparison as plain values; ``change`` is against the first result."""
    return {
        "results": [result.name for result in found.results],
        "metrics": [
            {
                "metric": row.metric,
                "values": list(row.values),
                "change": [_finite(row.change(i)) for i in range(len(row.values))],
                "best": None if row.best is None else found.results[row.best].name,
            }
            for row in found.rows
        ],
        "wins": dict(zip((r.name for r in found.results), found.wins, strict=True)),
        "differences": {k: list(v) for k, v in found.differences.items()},
        "notes": list(found.notes),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
