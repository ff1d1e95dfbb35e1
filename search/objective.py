"""Objectives: which metrics a search optimises, and in which direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.search.field_type import nearest, shown
from dynosim.search.metric import (
    LATENCIES,
    METRICS,
    STATISTICS,
    SYNONYMS,
    Direction,
    Metric,
    statistic_name,
)
from dynosim.search.source import KeyPath, Source

MAX_OBJECTIVES = 4
DEFAULT_STATISTIC = "p99"
"""Percentile of a latency that is named without one; the same as for SLOs."""

_DIRECTIONS: dict[str, Direction] = {
    "maximize": "maximize",
    "maximise": "maximize",
    "max": "maximize",
    "minimize": "minimize",
    "minimise": "minimize",
    "min": "minimize",
}


@dataclass(frozen=True)
class Objective:
    """One metric and the way it is pushed."""

    metric: str
    direction: Direction

    @property
    def sign(self) -> float:
        """1 where larger is better, else -1."""
        return 1.0 if self.direction == "maximize" else -1.0

    @property
    def description(self) -> Metric:
        """The metric's label and unit."""
        return METRICS[self.metric]


DEFAULT_OBJECTIVES = (
    Objective("output_tok_s_per_gpu", "maximize"),
    Objective("output_tok_s_per_user", "maximize"),
)


def parse_objectives(value: object, source: Source) -> tuple[Objective, ...]:
    """Returns the objectives written under ``objectives:``; InputErrors lists every problem."""
    entries = value if isinstance(value, list) else [value]
    if not 1 <= len(entries) <= MAX_OBJECTIVES:
        raise source.error(
            ("objectives",), f"found {len(entries)} objectives", f"allowed: 1 to {MAX_OBJECTIVES}"
        )
    objectives: list[Objective] = []
    errors: list[UserError] = []
    for i, entry in enumerate(entries):
        path: KeyPath = ("objectives", i) if isinstance(value, list) else ("objectives",)
        try:
            objective = _parse_one(entry, path, source)
        except UserError as error:
            errors.append(error)
            continue
        if any(objective.metric == other.metric for other in objectives):
            errors.append(source.error(path, f"{objective.metric} stands twice"))
        objectives.append(objective)
    if errors:
        raise InputErrors(errors)
    return tuple(objectives)


def _parse_one(entry: object, path: KeyPath, source: Source) -> Objective:
    parts: Mapping[str, Any] = entry if isinstance(entry, dict) else {"metric": entry}
    for key in parts:
        if key not in ("metric", "direction", "percentile"):
            close = nearest(key, ("metric", "direction", "percentile"))
            hint = f"nearest: {close[0]}; " if close else ""
            raise source.error(
                (*path, key), "unknown key", f"{hint}allowed: metric, direction, percentile"
            )
    name = _metric_name(parts.get("metric"), parts.get("percentile"), path, source)
    direction = parts.get("direction", METRICS[name].better)
    if direction not in _DIRECTIONS:
        raise source.error(
            (*path, "direction"), f"found {shown(direction)}", "allowed: maximize, minimize"
        )
    return Objective(name, _DIRECTIONS[direction])


def _metric_name(metric: object, percentile: object, path: KeyPath, source: Source) -> str:
    text = str(metric).replace("-", "_").lower()
    text = SYNONYMS.get(text, text)
    if text in LATENCIES:
        statistic = statistic_name(DEFAULT_STATISTIC if percentile is None else percentile)
        if statistic is None:
            raise source.error(
                (*path, "percentile"),
                f"found {shown(percentile)}",
                f"allowed: {', '.join(STATISTICS)}",
            )
        return f"{statistic}_{text}_ms"
    if text not in METRICS:
        known = [*METRICS, *LATENCIES]
        close = nearest(text, known)
        hint = f"nearest: {', '.join(close)}; " if close else ""
        allowed = ", ".join([*LATENCIES, *(m for m in METRICS if not m.endswith("_ms"))])
        raise source.error(path, f"unknown metric {shown(metric)}", f"{hint}allowed: {allowed}")
    if percentile is not None:
        raise source.error(
            (*path, "percentile"),
            f"{text} is one figure and has no percentile",
            f"with a percentile: {', '.join(LATENCIES)}",
        )
    return text
