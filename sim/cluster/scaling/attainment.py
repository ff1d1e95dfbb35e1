"""The share of answers that keep a limit, in the interval between two looks."""

from __future__ import annotations

import math


class Attainment:
    """Counts what kept ``limit_s``, and how much was looked at; without a limit all keep it."""

    def __init__(self, limit_ms: float | None) -> None:
        self._limit_s = math.inf if limit_ms is None else limit_ms * 1e-3
        self._kept = self._seen = 0

    def note(self, seconds: float) -> None:
        """Counts one more."""
        self._seen += 1
        self._kept += seconds <= self._limit_s

    def take(self) -> float:
        """Returns the share, NaN where there was nothing, and begins anew."""
        share = self._kept / self._seen if self._seen else math.nan
        self._kept = self._seen = 0
        return share
