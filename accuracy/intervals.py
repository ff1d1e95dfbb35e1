"""Intervals around predictions, from errors on groups that no fit has seen."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dynosim.accuracy.errors import Residual, quantity_of
from dynosim.accuracy.halves import fold_of
from dynosim.accuracy.residual_classes import (
    FIELDS,
    LEVEL,
    ErrorClass,
    Key,
    error_classes,
    fields_of,
    find_class,
)
from dynosim.hardware_models.cards import DATA

FILE = DATA / "calibrations" / "residuals.csv"
BASES = ("measured", "transferred", "roofline")
"""From kernels that were measured on this GPU to those that none like it was measured of."""

Classes = dict[tuple[str, Key], ErrorClass]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Where a measurement is expected with 80 %: ``low`` to ``high``, in the metric's own unit.

    ``like`` says in words what was measured like it, ``groups`` and ``points`` how much.
    """

    low: float
    high: float
    like: str
    groups: int
    points: int


@dataclass(frozen=True, kw_only=True)
class ErrorModel:
    """Classes of errors, and by quantity the factor that their widths were found to need.

    ``coverage`` is the share of points of groups that neither classes nor factors had seen.
    """

    classes: Classes
    widen: Mapping[str, float]
    coverage: Mapping[str, float]

    def log_bounds(self, quantity: str, fields: dict[str, str]) -> tuple[ErrorClass, float, float]:
        """Returns the class and ln(measured / predicted) at both ends; KeyError where unknown.

        A prediction that rests on weaker grounds never gets the narrower interval.
        """
        order = BASES[: BASES.index(fields["basis"]) + 1]
        found = [find_class(self.classes, quantity, fields | {"basis": basis}) for basis in order]
        known = [c for c in found if c is not None]
        if found[-1] is None:
            raise KeyError(quantity)
        factor = self.widen.get(quantity, 1.0)
        low = min(c.median + factor * (c.low - c.median) for c in known)
        high = max(c.median + factor * (c.high - c.median) for c in known)
        return found[-1], low, high

    def interval(self, metric: str, predicted: float, fields: dict[str, str]) -> Interval | None:
        """Returns the interval around one metric; None where nothing like it was measured."""
        if not (math.isfinite(predicted) and predicted > 0):
            return None
        try:
            like, low, high = self.log_bounds(quantity_of(metric), fields)
        except KeyError:
            return None
        words = [word for word in like.key if word != "*"]
        return Interval(
            low=predicted * math.exp(low),
            high=predicted * math.exp(high),
            like=", ".join(words) or "all that was measured",
            groups=like.groups,
            points=like.points,
        )


def learn(residuals: Sequence[Residual]) -> ErrorModel:
    """Returns the error model of residuals; its coverage is told from groups left out."""
    quantities = sorted({r.quantity for r in residuals})
    by_half = [[r for r in residuals if _half(r) == half] for half in (0, 1)]
    # What one half's factors do on the other half, of which they know nothing.
    crossed = [_widening(by_half[0]), _widening(by_half[1])][::-1]
    inside = {q: [0, 0] for q in quantities}
    for half, widen in zip(by_half, crossed, strict=True):
        for residual, ratio in _left_out(half):
            inside[residual.quantity][0] += ratio <= widen.get(residual.quantity, 1.0)
            inside[residual.quantity][1] += 1
    return ErrorModel(
        classes=error_classes(residuals),
        widen=_widening(residuals),
        coverage={q: hit / of for q, (hit, of) in inside.items() if of},
    )


def _half(residual: Residual) -> int:
    return fold_of(f"interval {residual.group}", 2)


def _widening(residuals: Sequence[Residual]) -> dict[str, float]:
    """Returns by quantity the factor on widths at which 80 % of left-out points are inside."""
    ratios: dict[str, list[float]] = {}
    for residual, ratio in _left_out(residuals):
        ratios.setdefault(residual.quantity, []).append(ratio)
    return {q: float(np.quantile(found, LEVEL)) for q, found in ratios.items()}


def _left_out(residuals: Sequence[Residual]) -> Iterable[tuple[Residual, float]]:
    """Yields every residual with the factor at which an interval of the other groups reaches it."""
    groups = sorted({r.group for r in residuals})
    for group in groups:
        model = ErrorModel(
            classes=error_classes(r for r in residuals if r.group != group),
            widen={},
            coverage={},
        )
        for residual in (r for r in residuals if r.group == group):
            try:
                like, low, high = model.log_bounds(residual.quantity, fields_of(residual))
            except KeyError:
                continue
            error = math.log(residual.measured / residual.predicted)
            room = (high if error > like.median else low) - like.median
            yield residual, (error - like.median) / room if room else math.inf


def write_model(model: ErrorModel, path: Path) -> None:
    """Writes a model as CSV: one row a class; factor and coverage stand with the widest class."""
    with path.open("w", newline="", encoding="utf-8") as lines:
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerow(("quantity", *FIELDS, *_NUMBERS, "widen", "coverage"))
        for (quantity, key), c in model.classes.items():
            cells = [f"{v:.4g}" for v in (c.points, c.groups, c.low, c.median, c.high)]
            whole = {"widen": model.widen, "coverage": model.coverage}
            ends = [
                f"{of.get(quantity, 1.0):.4g}" if set(key) == {"*"} else "" for of in whole.values()
            ]
            rows.writerow((quantity, *key, *cells, *ends))


_NUMBERS = ("points", "groups", "low", "median", "high")


@lru_cache(maxsize=4)
def read_model(path: Path = FILE) -> ErrorModel:
    """Returns the model in a file, one without any class where there is no file."""
    classes: Classes = {}
    widen, coverage = dict[str, float](), dict[str, float]()
    if path.exists():
        with path.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                found = ErrorClass(
                    quantity=row["quantity"],
                    key=tuple(row[f] for f in FIELDS),
                    points=int(float(row["points"])),
                    groups=int(float(row["groups"])),
                    low=float(row["low"]),
                    median=float(row["median"]),
                    high=float(row["high"]),
                )
                classes[found.quantity, found.key] = found
                if row["widen"]:
                    widen[found.quantity] = float(row["widen"])
                    coverage[found.quantity] = float(row["coverage"])
    return ErrorModel(classes=classes, widen=widen, coverage=coverage)
