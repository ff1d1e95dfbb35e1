"""Intervals around predictions, from errors on groups that no fit has seen."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dynosim.accuracy.error_classes import FIELDS, ErrorClass, Key, find_class
from dynosim.accuracy.kinds import quantity_of
from dynosim.hardware_models.cards import DATA

if TYPE_CHECKING:
    import pandas as pd

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

    def to_frame(self) -> pd.DataFrame:
        """Returns the classes, a row each: FIELDS ("*" is any), points, groups, and bounds.

        ``low``, ``median`` and ``high`` are measured / predicted; the widths that intervals take
        are these times the quantity's factor of ``widen``.
        """
        import pandas as pd

        rows = [
            (c.quantity, *c.key, c.points, c.groups, *map(math.exp, (c.low, c.median, c.high)))
            for c in self.classes.values()
        ]
        return pd.DataFrame(rows, columns=["quantity", *FIELDS, *NUMBERS])


NUMBERS = ("points", "groups", "low", "median", "high")


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
