"""What has to be served: requests per second over the hours, now or after a time of growth."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from dynosim.hardware_models.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Demand:
    """``requests_s`` of each hour of a cycle (a day, a week; one value: always the same)."""

    requests_s: tuple[float, ...]

    @property
    def peak(self) -> float:
        """Requests per second of the busiest hour."""
        return max(self.requests_s)

    @property
    def mean(self) -> float:
        """Requests per second over all hours."""
        return math.fsum(self.requests_s) / len(self.requests_s)

    def times(self, factor: float) -> Demand:
        """Returns so many times the demand."""
        return Demand(requests_s=tuple(factor * rate for rate in self.requests_s))


def growth_factor(growth: float, months: float) -> float:
    """Returns what a demand that grows by ``growth`` (share) a month becomes after ``months``."""
    return float((1.0 + growth) ** months)


def read_demand(path: Path) -> Demand:
    """Returns the demand of a CSV file: an hour a row, its last column requests per second.

    A first row without a number is a header. UserError names file and line.
    """
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=str(path)) from None
    rates = []
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        rate = _number(row[-1])
        if rate is None and number == 1:
            continue
        if rate is None or rate < 0 or not math.isfinite(rate):
            where = f"{path.name}:{number}"
            raise UserError(f"found {row[-1]!r}", where=where, hint="allowed: requests/s >= 0")
        rates.append(rate)
    if not rates or max(rates) == 0:
        raise UserError("no hour has any demand", where=str(path))
    return Demand(requests_s=tuple(rates))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
