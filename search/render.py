"""A search's answer as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynosim.search.metric import METRICS
from dynosim.search.result import SearchResult
from dynosim.search.table import mark
from dynosim.search.trial import Trial

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MAX_ROWS = 40
EXTRA_METRICS = ("p99_ttft_ms", "median_tpot_ms", "usd_per_hour")


def print_result(result: SearchResult, console: Console | None = None) -> None:
    """Prints the frontier, its marks and what the other trials came to, on stdout."""
    from rich.console import Console as RichConsole

    console = console or RichConsole()
    if result.frontier:
        console.print(frontier_table(result))
    for line in summary_lines(result):
        console.print(line, highlight=False, soft_wrap=True)


def frontier_table(result: SearchResult) -> Table:
    """Returns the frontier as a table; the cheapest trial stands below it where it is not on it."""
    from rich.table import Table

    rows = list(result.frontier)
    shown = _thinned(rows, result)
    table = Table(title=f"Frontier: {len(rows)} of {len(result.trials)} trials")
    varied = [d.name for d in result.space.varied]
    metrics = [o.metric for o in result.space.objectives]
    metrics += [m for m in EXTRA_METRICS if m not in metrics]
    for name in ("trial", *varied, "GPUs"):
        table.add_column(name, justify="left" if name in ("backend", "gpu", "router") else "right")
    for name in metrics:
        table.add_column(_heading(name), justify="right")
    table.add_column("")
    if result.cheapest is not None and result.cheapest not in shown:
        shown = [*shown, result.cheapest]
    for trial in shown:
        table.add_row(*_cells(result, trial, varied, metrics), style=_style(mark(result, trial)))
    return table


def _thinned(rows: Sequence[Trial], result: SearchResult) -> list[Trial]:
    """Returns at most MAX_ROWS of the frontier, evenly spread, the knee among them."""
    if len(rows) <= MAX_ROWS:
        return list(rows)
    kept = {round(i * (len(rows) - 1) / (MAX_ROWS - 1)) for i in range(MAX_ROWS)}
    return [t for i, t in enumerate(rows) if i in kept or t is result.knee]


def _heading(name: str) -> str:
    metric = METRICS[name]
    short = {"output_tok_s_per_gpu": "tok/s/GPU", "output_tok_s_per_user": "tok/s/user"}
    unit = f" {metric.unit}" if metric.unit else ""
    return short.get(name, f"{metric.label}{unit}")


def _cells(
    result: SearchResult, trial: Trial, varied: Sequence[str], metrics: Sequence[str]
) -> list[str]:
    deployment = [str(getattr(trial.deployment, name)) for name in varied]
    figures = [_figure(trial.metrics.get(name)) for name in metrics]
    return [
        str(trial.number),
        *deployment,
        str(trial.deployment.num_gpus),
        *figures,
        _mark_text(result, trial),
    ]


def _figure(value: float | None) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _mark_text(result: SearchResult, trial: Trial) -> str:
    within = "cheapest within SLO" if result.space.slos else "cheapest"
    names = {"knee": "◆ knee", "cheapest": f"$ {within}"}
    return ", ".join(names[m] for m in mark(result, trial).split())


def _style(marks: str) -> str:
    return "bold" if marks else ""


def summary_lines(result: SearchResult) -> list[str]:
    """Returns what was tried, what was infeasible and why, and what bounds were kept."""
    feasible = sum(t.is_feasible for t in result.trials)
    how = "all candidates" if result.mode == "exhaustive" else f"of {result.space.size} candidates"
    lines = [
        f"{len(result.trials)} trials ({how}), {feasible} feasible"
        + (f", {result.ending}" if result.ending != "finished" else "")
    ]
    if result.reasons:
        counts = ", ".join(f"{n} {reason}" for reason, n in result.reasons.most_common())
        lines.append(f"infeasible: {counts}")
    if result.space.slos:
        lines.append(f"SLO: {', '.join(map(str, result.space.slos))}")
    if not result.frontier:
        lines.append("no candidate is feasible: nothing to choose from")
        lines.extend(_examples(result))
    return lines


def _examples(result: SearchResult) -> list[str]:
    first: dict[str, str] = {}
    for trial in result.trials:
        if trial.reason is not None:
            first.setdefault(
                trial.reason, f"  {trial.reason}, trial {trial.number}: {trial.detail}"
            )
    return list(first.values())
