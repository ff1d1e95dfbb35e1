"""Results side by side: files of benchmark tools and of dynosim, and points of a search's run."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynosim.accuracy.result_file import read_results
from dynosim.hardware_models.errors import UserError
from dynosim.search.metric import METRICS
from dynosim.search.table import STATUS_COLUMNS
from dynosim.sim.deployment import Deployment

LEADING = (
    "request_throughput",
    "output_throughput",
    "output_tok_s_per_gpu",
    "output_tok_s_per_user",
    "request_goodput",
    "mean_ttft_ms",
    "p95_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "p95_tpot_ms",
    "p99_itl_ms",
    "mean_e2el_ms",
    "p95_e2el_ms",
    "prefix_hit_rate",
    "preemptions",
    "kv_usage_peak",
    "num_gpus",
    "usd_per_hour",
    "usd_per_million_output_tokens",
    "quality",
)
"""The metrics that are shown unless all are asked for."""

SAME_LOAD = 0.02
"""Two loads whose lengths or rates differ by more are not the same load."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run: its metrics, what was deployed (field -> text), and its load (name -> number)."""

    name: str
    metrics: Mapping[str, float]
    deployment: Mapping[str, str]
    load: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One metric over all results; ``best`` is the index of the winner, None for a tie."""

    metric: str
    label: str
    values: tuple[float, ...]
    best: int | None

    def change(self, index: int) -> float:
        """Returns the relative difference to the first result; NaN where that is 0."""
        first = self.values[0]
        return self.values[index] / first - 1.0 if first else math.nan


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rows of what all results report; ``notes`` say where they are not comparable."""

    results: tuple[Result, ...]
    rows: tuple[Row, ...]
    differences: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]

    @property
    def wins(self) -> tuple[int, ...]:
        """How many of the rows each result wins."""
        return tuple(
            sum(row.best == index for row in self.rows) for index in range(len(self.results))
        )


def read_result(where: str) -> list[Result]:
    """Returns the results at a path: a tool's or dynosim's JSON file, or a search's folder.

    ``FOLDER:12`` is trial 12 of the folder, ``FOLDER:cheapest`` and ``FOLDER:knee`` the marked
    ones; a folder alone is its knee, or its cheapest where there is none. UserError for anything
    else.
    """
    path, _, which = where.rpartition(":") if _names_a_trial(where) else (where, "", "")
    if Path(path).is_dir():
        return [_trial(Path(path), which)]
    return _file(Path(where))


def _names_a_trial(where: str) -> bool:
    folder, found, _ = where.rpartition(":")
    return bool(found) and Path(folder).is_dir()


def _file(path: Path) -> list[Result]:
    own = _own(path)
    if own is not None:
        return [own]
    runs = read_results(path)
    return [
        Result(
            name=path.stem if len(runs) == 1 else f"{path.stem} #{number}",
            metrics=run.measured,
            deployment={"model": run.model} if run.model else {},
            load=_load(run.input_tokens, run.output_tokens, run.request_rate, run.max_concurrency),
        )
        for number, run in enumerate(runs, 1)
    ]


def _own(path: Path) -> Result | None:
    """Returns the result that dynosim wrote, with its own metrics; None for another tool's."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("dynosim"), dict):
        return None
    own, count = document["dynosim"], max(document["completed"], 1)
    flat = {k: v for k, v in document.items() if k in METRICS}
    rate = document["request_rate"]
    return Result(
        name=path.stem,
        metrics={k: float(v) for k, v in (flat | own["metrics"]).items() if _is_number(v)},
        deployment={k: str(v) for k, v in own["deployment"].items()},
        load=_load(
            document["total_input_tokens"] / count,
            document["total_output_tokens"] / count,
            None if rate == "inf" else rate,
            document["max_concurrency"],
        ),
    )


def _load(
    input_tokens: float, output_tokens: float, rate: float | None, concurrency: int | None
) -> dict[str, float]:
    named = {
        "prompt tokens": input_tokens,
        "answer tokens": output_tokens,
        "requests/s": rate,
        "concurrency": concurrency,
    }
    return {k: float(v) for k, v in named.items() if v is not None and math.isfinite(v)}


def _trial(folder: Path, which: str) -> Result:
    table = folder / "trials.csv"
    try:
        rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    except OSError as error:
        hint = "allowed: a result's JSON, or the output folder of a search"
        raise UserError(f"cannot be read: {error.strerror}", where=str(table), hint=hint) from None
    wanted = [which] if which else ["knee", "cheapest"]
    for word in wanted:
        for row in rows:
            if word in (row["number"], *row["mark"].split()):
                return _of_row(folder, row)
    marks = sorted({mark for row in rows for mark in row["mark"].split()})
    raise UserError(
        f"no trial {' or '.join(wanted)}",
        where=str(folder),
        hint=f"allowed: 0 to {len(rows) - 1}" + "".join(f", {mark}" for mark in marks),
    )


def _of_row(folder: Path, row: Mapping[str, str]) -> Result:
    fields = Deployment.__dataclass_fields__
    skipped = {*STATUS_COLUMNS, *(name for name in fields if name not in METRICS)}
    return Result(
        name=f"{folder.name}:{row['number']}",
        metrics={k: float(v) for k, v in row.items() if k not in skipped and v},
        deployment={name: row[name] for name in fields if name in row},
        load={},
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def compare(results: Sequence[Result], *, everything: bool = False) -> Comparison:
    """Returns results side by side; UserError where they have no metric in common."""
    shared = set.intersection(*(set(r.metrics) for r in results)) & set(METRICS)
    names = [n for n in METRICS if n in shared] if everything else []
    names = names or [n for n in LEADING if n in shared]
    if not names:
        raise UserError("the results have no metric in common")
    return Comparison(
        results=tuple(results),
        rows=tuple(_row(name, [r.metrics[name] for r in results]) for name in names),
        differences=_differences(results),
        notes=tuple(_notes(results)),
    )


def _row(name: str, values: Sequence[float]) -> Row:
    metric = METRICS[name]
    best = max(values) if metric.better == "maximize" else min(values)
    winners = [index for index, value in enumerate(values) if value == best]
    return Row(
        metric=name,
        label=metric.axis,
        values=tuple(values),
        best=winners[0] if len(winners) == 1 else None,
    )


def _differences(results: Sequence[Result]) -> dict[str, tuple[str, ...]]:
    """Returns field -> the value of each result, of the fields that all state and differ in."""
    fields = [f for f in results[0].deployment if all(f in r.deployment for r in results)]
    table = {f: tuple(r.deployment[f] or "–" for r in results) for f in fields}
    return {f: values for f, values in table.items() if len(set(values)) > 1}


def _notes(results: Sequence[Result]) -> list[str]:
    first = results[0].load
    notes = []
    for result in results[1:]:
        for name in first.keys() & result.load.keys():
            if abs(result.load[name] - first[name]) > SAME_LOAD * first[name]:
                notes.append(
                    f"{result.name} has {result.load[name]:,.4g} {name}, {results[0].name} has "
                    f"{first[name]:,.4g}: they did not do the same work"
                )
    return sorted(notes)
