"""One shape to measure, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dynosim.hardware_models.measure.families import KEYS


class Unsupported(Exception):
    """This device or library cannot run the shape; the text says why, for the user to read."""


@dataclass(frozen=True)
class Case:
    """One row of a kernel table before it is measured.

    ``values`` stand in the order of ``families.KEYS[family]``; ``rank`` says how soon the row is
    wanted: rank 0 alone already makes a table that spans the grid.
    """

    family: str
    values: tuple[str | int, ...]
    rank: int = field(default=0, compare=False)

    @property
    def key(self) -> dict[str, Any]:
        """The values by the names of the family's key columns."""
        return dict(zip(KEYS[self.family], self.values, strict=True))

    @property
    def label(self) -> str:
        """Short words for progress and messages."""
        return f"{self.family} " + " ".join(map(str, self.values))

    @classmethod
    def of(cls, family: str, key: Mapping[str, Any], rank: int = 0) -> Case:
        """Returns the case with those key values; KeyError where one is missing."""
        return cls(family, tuple(key[name] for name in KEYS[family]), rank)


@dataclass(frozen=True)
class Timing:
    """Seconds of one call of a shape, over ``samples`` samples.

    ``spread`` is the half-width of the median's 95 % confidence interval over the median;
    ``drift`` how much the later half of the samples took longer than the earlier half;
    ``outliers`` the share of samples beyond 1.5 times the median.
    """

    median_s: float
    p10_s: float
    p90_s: float
    samples: int
    spread: float
    drift: float
    outliers: float
    kernel: str = ""


@dataclass(frozen=True)
class Skipped:
    """Why a shape has no seconds."""

    reason: str


Outcome = Timing | Skipped
