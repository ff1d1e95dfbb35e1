"""A conclusion on one screen of text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dynosim.search.figure import short_name
from dynosim.search.metric import METRICS
from dynosim.search.render import SHORT_FIELDS, SHORT_METRICS
from dynosim.search.result import SearchResult
from dynosim.search.trial import Trial
from dynosim.verification.choice import Pick
from dynosim.verification.comparison import Row
from dynosim.verification.conclusion import Conclusion
from dynosim.verification.engine_facts import Fact
from dynosim.verification.measured import DRIFT
from dynosim.verification.preference import Preference
from dynosim.verification.ranking import Ranking
from dynosim.verification.regret import Regret
from dynosim.verification.rescore import Rescored

if TYPE_CHECKING:
    from rich.table import Table

LATENCIES = ("median_ttft_ms", "median_tpot_ms")
"""Shown beside the objectives while they fit on a screen."""
MOST_ROWS = 24
IN_SHORT_NAME = (
    "backend",
    "gpu",
    "replicas",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
)
REASON_CHARS = 76


def pick_lines(result: SearchResult, picks: Sequence[Pick]) -> list[str]:
    """Returns a line a pick: trial, deployment and why it is worth measuring."""
    names = [name_of(result, p.trial) for p in picks]
    widest = max(map(len, names), default=0)
    return [
        f"trial {p.number:<5} {name:<{widest}}  {_cut(p.reason)}"
        for p, name in zip(picks, names, strict=True)
    ]


def name_of(result: SearchResult, trial: Trial) -> str:
    """Returns a deployment in a few words, with what varies over the run."""
    varied = [d.name for d in result.space.varied if d.name not in IN_SHORT_NAME]
    words = [f"{SHORT_FIELDS.get(n, n)} {_value(getattr(trial.deployment, n))}" for n in varied]
    return ", ".join([short_name(trial), *words])


def _value(value: object) -> str:
    return "default" if value is None else str(value).lower()


def _cut(text: str) -> str:
    return text if len(text) <= REASON_CHARS else text[: REASON_CHARS - 1] + "…"


def error_table(conclusion: Conclusion) -> Table:
    """Returns predicted against measured, a row a pick and metric."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    found = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    found.add_column("trial", justify="right")
    found.add_column("metric", no_wrap=True)
    for name in ("predicted", "measured", "error", "repeats ±", "80 % interval"):
        found.add_column(name, justify="right")
    for measured, rows in zip(conclusion.measured, shown_rows(conclusion), strict=True):
        name = f"{measured.pick.number}"
        if measured.failure is not None:
            found.add_row(name, "not measured: " + _cut(measured.failure.splitlines()[0]))
        for row in rows:
            found.add_row(name, *_cells(row))
            name = ""
    return found


def shown_rows(conclusion: Conclusion) -> list[list[Row]]:
    """Returns the rows of a screen, pick by pick: objectives, and two latencies while they fit."""
    objectives = conclusion.prepared.objectives
    names = dict.fromkeys((*objectives, *LATENCIES))
    if len(names) * len(conclusion.measured) > MOST_ROWS:
        names = dict.fromkeys(objectives)
    by_name = [{row.metric: row for row in rows} for rows in conclusion.rows]
    return [[rows[name] for name in names if name in rows] for rows in by_name]


def _cells(row: Row) -> tuple[str, ...]:
    inside = {None: "–", True: "inside", False: "outside"}[row.is_inside]
    if row.interval is not None:
        inside = f"{figure(row.interval[0])} … {figure(row.interval[1])} {inside}"
    metric = METRICS[row.metric]
    label = SHORT_METRICS.get(row.metric, f"{metric.label} {metric.unit}".strip())
    return (
        label,
        figure(row.predicted),
        figure(row.measured),
        signed(row.error),
        spread(row),
        inside,
    )


def figure(value: float) -> str:
    """Returns a figure with four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def signed(share: float) -> str:
    """Returns a share in percent with its sign."""
    return "–" if math.isnan(share) else f"{share:+.1%}"


def spread(row: Row) -> str:
    """Returns how far the repeats of a row's metric are apart, marked where that is too far."""
    if math.isnan(row.spread):
        return "–"
    return f"{row.spread:.1%}" + (" !" if row.spread > DRIFT else "")


def summary_lines(conclusion: Conclusion) -> Iterator[str]:
    """Yields order, regret, KV cache, the new frontier and the verdict, each in a line or two."""
    for ranking in conclusion.rankings:
        yield _order(ranking, conclusion.prepared.preference)
    if conclusion.regret is not None:
        yield _regret(conclusion.regret)
    yield from _engine_lines(conclusion)
    if conclusion.rescored is not None:
        yield _frontier(conclusion.rescored)
    notes = dict.fromkeys(note for m in conclusion.measured for note in m.notes)
    yield from (f"note: {note}" for note in notes)
    yield f"verdict: {conclusion.verdict.word}"
    yield from (f"  {reason}" for reason in conclusion.verdict.reasons)


def _order(ranking: Ranking, preference: Preference) -> str:
    name = (
        f"preference ({preference.text()})"
        if ranking.metric == "preference"
        else METRICS[ranking.metric].label
    )
    tau = "–" if math.isnan(ranking.tau) else f"{ranking.tau:.2f}"
    turned = [f"{p.first} and {p.second}" for p in ranking.pairs if not p.is_kept]
    words = f"; turned: {', '.join(turned)}" if turned else ""
    count = len(ranking.pairs)
    kept = f"{ranking.kept} of {count} predicted gaps beyond the noise kept{words}"
    return f"order by {name}: Kendall tau {tau}, {kept if count else 'no gap beyond the noise'}"


def _engine_lines(conclusion: Conclusion) -> Iterator[str]:
    """Yields a line for each figure that engines logged, with that of every trial."""
    by_name: dict[str, list[tuple[int, Fact]]] = {}
    for measured, facts in zip(conclusion.measured, conclusion.facts, strict=True):
        for fact in facts:
            by_name.setdefault(fact.name, []).append((measured.pick.number, fact))
    for name, rows in by_name.items():
        words = [
            f"trial {number} {figure(fact.predicted)} / {figure(fact.logged)} {fact.unit} "
            f"({signed(fact.error)})"
            for number, fact in rows
        ]
        yield f"{name}, predicted / logged: {', '.join(words)}"


def _regret(regret: Regret) -> str:
    if regret.best == regret.pick:
        return f"regret: none, trial {regret.pick} is the best measured"
    if regret.is_broken:
        return f"regret: trial {regret.pick} breaks a limit that trial {regret.best} keeps"
    return (
        f"regret: {regret.share:.1%} (trial {regret.pick} against trial {regret.best}, the best "
        f"measured; noise {regret.noise:.1%})"
    )


def _frontier(rescored: Rescored) -> str:
    changes = [
        f"{word} {', '.join(map(str, numbers))}"
        for word, numbers in (("enter", rescored.entered), ("leave", rescored.left))
        if numbers
    ]
    return (
        f"frontier scored anew ({rescored.method}): {len(rescored.frontier)} trials"
        + (f"; {'; '.join(changes)}" if changes else ", the same ones")
        + f"; best by the run's preference is trial {rescored.winner}"
    )


def print_conclusion(conclusion: Conclusion) -> None:
    """Prints a conclusion on stdout; where that is no terminal, without colour or wrapping."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=200, color_system=None)
    for line in pick_lines(conclusion.prepared.result, [m.pick for m in conclusion.measured]):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    console.print(error_table(conclusion))
    for line in summary_lines(conclusion):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
