"""Bounds on any metric: a quality floor, no preemptions, joules per token at most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.search.field_type import nearest, shown
from dynosim.search.metric import METRICS, SYNONYMS
from dynosim.search.source import KeyPath, Source


class Limit(Protocol):
    """What a feasible trial keeps: a bound, or an SLO."""

    @property
    def metric(self) -> str: ...

    def violation(self, metrics: Mapping[str, float]) -> float:
        """Returns the relative excess over the limit; ≤ 0 is kept."""


@dataclass(frozen=True)
class Bound:
    """``metric`` must not be above ``limit``, or not below it where ``is_least``."""

    metric: str
    limit: float
    is_least: bool

    def violation(self, metrics: Mapping[str, float]) -> float:
        """Returns the relative excess; ≤ 0 is kept. What is unknown or not a number is missed."""
        value = metrics.get(self.metric, math.nan)
        if math.isnan(value):
            return math.inf
        if self.limit == 0.0:
            return value * (-1.0 if self.is_least else 1.0)
        excess = (value - self.limit) / abs(self.limit)
        return -excess if self.is_least else excess

    def __str__(self) -> str:
        metric = METRICS[self.metric]
        sign = "≥" if self.is_least else "≤"
        return f"{metric.label} {sign} {self.limit:g} {metric.unit}".strip()


def parse_bounds(value: object, source: Source) -> tuple[Bound, ...]:
    """Returns the bounds under ``constraints:``; InputErrors lists every problem.

    ``{preemptions: 0}`` bounds on the side where the metric is worse; ``{quality: {min: 0.98}}``
    says which.
    """
    if not isinstance(value, dict):
        raise source.error(
            ("constraints",), f"found {shown(value)}", "allowed: a mapping such as {quality: 0.98}"
        )
    bounds: list[Bound] = []
    errors: list[UserError] = []
    for key, limits in value.items():
        try:
            bounds += _parse_one(key, limits, source)
        except UserError as error:
            errors.append(error)
    if errors:
        raise InputErrors(errors)
    return tuple(bounds)


def _parse_one(key: object, limits: object, source: Source) -> list[Bound]:
    path: KeyPath = ("constraints", str(key))
    name = str(key).replace("-", "_").lower()
    name = SYNONYMS.get(name, name)
    if name not in METRICS:
        close = nearest(name, METRICS)
        hint = f"nearest: {', '.join(close)}; " if close else ""
        allowed = ", ".join(m for m in METRICS if not m.endswith("_ms"))
        raise source.error(path, "unknown metric", f"{hint}allowed: {allowed}, p99_ttft_ms, …")
    worse = "min" if METRICS[name].better == "maximize" else "max"
    sides: dict[str, object] = limits if isinstance(limits, dict) else {worse: limits}
    bounds = []
    for side, limit in sides.items():
        if side not in ("min", "max"):
            raise source.error((*path, str(side)), "unknown key", "allowed: min, max")
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if not is_number or not math.isfinite(limit):  # type: ignore[arg-type]
            raise source.error(path, f"found {shown(limit)}", "allowed: a number, or {min, max}")
        bounds.append(Bound(name, float(limit), side == "min"))  # type: ignore[arg-type]
    return bounds
