"""Trials and frontier as rows: the columns of ``trials.csv`` and ``frontier.csv``."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dynosim.search.field_type import field_types
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment

if TYPE_CHECKING:
    from dynosim.search.result import SearchResult

DEPLOYMENT_COLUMNS = tuple(field_types(Deployment))
STATUS_COLUMNS = ("number", "is_feasible", "reason", "detail", "on_frontier", "mark", "timing")

CHANCE_COLUMN = "p_non_dominated"
"""The probability that a trial is truly non-dominated, since predictions err."""

NEAR_COLUMN = "p_non_dominated_or_near"
"""The probability that it, or a trial within 1 % of it, is."""

SHARE_COLUMN = "non_dominated_share"
"""Where there are replicates: the share of them in which nothing dominated the trial."""


def trial_columns(result: SearchResult) -> list[str]:
    """Returns status, deployment, objectives, then every other metric by name."""
    objectives = [o.metric for o in result.space.objectives]
    metrics = {name for trial in result.trials for name in trial.metrics}
    taken = {*STATUS_COLUMNS, *DEPLOYMENT_COLUMNS, *objectives}
    shares = [CHANCE_COLUMN, NEAR_COLUMN] if result.chances else []
    shares += [SHARE_COLUMN] if result.shares_best else []
    return [*STATUS_COLUMNS, *shares, *DEPLOYMENT_COLUMNS, *objectives, *sorted(metrics - taken)]


def trial_rows(
    result: SearchResult, trials: Iterable[Trial] | None = None
) -> Iterator[dict[str, Any]]:
    """Yields one mapping a trial; keys are those of :func:`trial_columns`, absent: unknown."""
    on_frontier = {trial.number for trial in result.frontier}
    for trial in result.trials if trials is None else trials:
        chance = result.chances.get(trial.number)
        yield {
            **trial.metrics,
            **asdict(trial.deployment),
            "number": trial.number,
            "is_feasible": trial.is_feasible,
            "reason": trial.reason,
            "detail": trial.detail,
            "on_frontier": trial.number in on_frontier,
            "mark": mark(result, trial),
            "timing": trial.timing,
            CHANCE_COLUMN: chance.alone if chance else None,
            NEAR_COLUMN: chance.or_near if chance else None,
            SHARE_COLUMN: result.shares_best.get(trial.number),
        }


def mark(result: SearchResult, trial: Trial) -> str:
    """Returns ``knee``, ``cheapest``, both or nothing."""
    marks = (("knee", result.knee), ("cheapest", result.cheapest))
    return " ".join(name for name, marked in marks if marked is trial)


def to_csv(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> bytes:
    """Returns CSV text: numbers in their shortest exact form, nothing for unknown or NaN."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return text.getvalue().encode()


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
