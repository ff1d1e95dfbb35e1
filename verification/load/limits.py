"""How long a measurement may take, and what it may lose, before it is given up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a measurement, so that no server can make it endless or wrong unnoticed.

    ``request_timeout_s`` is for one whole answer, ``run_timeout_s`` for warm-up and load together.
    ``max_failed_share`` of the requests may fail, but never all. ``max_lag_share`` of the median
    TTFT is how late the load generator itself may be, at its 99th percentile.
    """

    request_timeout_s: float = 600.0
    run_timeout_s: float = 3600.0
    max_failed_share: float = 0.05
    max_lag_share: float = 0.05

    def allowed_failures(self, requests: int) -> int:
        """Returns how many of so many requests may fail."""
        return min(int(self.max_failed_share * requests), requests - 1)
