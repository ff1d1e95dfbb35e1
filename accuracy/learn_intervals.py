"""Learns intervals from errors on held-out groups, and how many of those they hold."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dynosim.accuracy.error_classes import FIELDS, LEVEL, error_classes, fields_of
from dynosim.accuracy.errors import Residual
from dynosim.accuracy.halves import fold_of
from dynosim.accuracy.intervals import NUMBERS, ErrorModel
from dynosim.accuracy.shared_errors import Z_HIGH


def learn(residuals: Sequence[Residual]) -> ErrorModel:
    """Returns the error model of residuals; its coverage is told from groups left out."""
    quantities = sorted({r.quantity for r in residuals})
    by_half = [[r for r in residuals if _half(r) == half] for half in (0, 1)]
    # What one half's factors do on the other half, of which they know nothing.
    crossed = [_widening(by_half[0]), _widening(by_half[1])][::-1]
    inside = {q: [0, 0] for q in quantities}
    for half, widen in zip(by_half, crossed, strict=True):
        for residual, ratio, _ in _left_out(half):
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
    for residual, ratio, _ in _left_out(residuals):
        ratios.setdefault(residual.quantity, []).append(ratio)
    return {q: float(np.quantile(found, LEVEL)) for q, found in ratios.items()}


def _left_out(residuals: Sequence[Residual]) -> Iterable[tuple[Residual, float, bool]]:
    """Yields every residual with the factor at which an interval of the other groups reaches it.

    And whether it lies above the median.
    """
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
            is_above = error > like.median
            room = (high if is_above else low) - like.median
            yield residual, (error - like.median) / room if room else math.inf, is_above


def left_out_scores(residuals: Sequence[Residual]) -> Iterable[tuple[Residual, float]]:
    """Yields every residual with its standard normal score by the classes of the other groups.

    An interval's ends, wide enough to hold :data:`LEVEL` of left-out points, are at ± 1.28.
    """
    widen = _widening(residuals)
    for residual, ratio, is_above in _left_out(residuals):
        score = Z_HIGH * ratio / widen[residual.quantity]
        yield residual, score if is_above else -score


def write_model(model: ErrorModel, path: Path) -> None:
    """Writes a model as CSV: one row a class; factor and coverage stand with the widest class."""
    with path.open("w", newline="", encoding="utf-8") as lines:
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerow(("quantity", *FIELDS, *NUMBERS, "widen", "coverage"))
        for (quantity, key), c in model.classes.items():
            cells = [f"{v:.4g}" for v in (c.points, c.groups, c.low, c.median, c.high)]
            whole = {"widen": model.widen, "coverage": model.coverage}
            ends = [
                f"{of.get(quantity, 1.0):.4g}" if set(key) == {"*"} else "" for of in whole.values()
            ]
            rows.writerow((quantity, *key, *cells, *ends))
