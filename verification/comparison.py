"""Predicted against measured, metric by metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynosim.search.metric import METRICS
from dynosim.search.report.intervals import trial_intervals
from dynosim.search.trial import Trial
from dynosim.verification.measured import Measured

KINDS = ("ttft", "tpot", "itl", "e2el")
STATISTICS = ("mean", "median", "p90", "p95", "p99")
RATES = (
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
    "slo_attainment",
    "prefix_hit_rate",
    "preemptions",
)
COMPARED = (*RATES, *(f"{s}_{kind}_ms" for kind in KINDS for s in STATISTICS))
"""What is compared beside objectives and limits, where both sides have it."""

Ends = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One metric of one pick. ``interval`` holds four measurements in five, where any is known.

    ``spread`` is that of the repeats, NaN where there is but one.
    """

    metric: str
    predicted: float
    measured: float
    spread: float
    interval: Ends | None = None

    @property
    def error(self) -> float:
        """Predicted over measured, less one; NaN where nothing was measured to divide by."""
        return self.predicted / self.measured - 1.0 if self.measured else math.nan

    @property
    def is_inside(self) -> bool | None:
        """Whether the measurement lies in the interval; None where there is none."""
        if self.interval is None:
            return None
        return self.interval[0] <= self.measured <= self.interval[1]


def compare(measured: Measured, objectives: Sequence[str], *, is_open: bool) -> tuple[Row, ...]:
    """Returns a row for every metric that was both predicted and measured, objectives first.

    In an open loop request throughput is the load's, and has no interval.
    """
    predicted, found = measured.pick.trial.metrics, measured.metrics
    intervals = intervals_of(measured.pick.trial, is_open=is_open)
    names = [m for m in dict.fromkeys((*objectives, *COMPARED)) if m in METRICS]
    return tuple(
        Row(
            metric=name,
            predicted=predicted[name],
            measured=found[name],
            spread=measured.spread(name),
            interval=intervals.get(name),
        )
        for name in names
        if math.isfinite(predicted.get(name, math.nan)) and math.isfinite(found.get(name, math.nan))
    )


def intervals_of(trial: Trial, *, is_open: bool) -> dict[str, Ends]:
    """Returns intervals by metric: those of means, and of what goes with a mean.

    A median has the relative errors of its mean (errors are learnt for both alike), tokens a
    second those of requests a second, and a user's speed is the inverse of the TPOT.
    """
    found: dict[str, Ends] = dict(trial_intervals(trial, is_open=is_open))
    for kind in KINDS:
        found |= _carried(trial, found, f"mean_{kind}_ms", f"median_{kind}_ms", f"p50_{kind}_ms")
    tokens = ("output_throughput", "total_token_throughput")
    per_gpu = ("output_tok_s_per_gpu", "total_tok_s_per_gpu")
    found |= _carried(trial, found, "request_throughput", *tokens, *per_gpu)
    speed = trial.metrics.get("output_tok_s_per_user", math.nan)
    if "median_tpot_ms" in found and speed > 0:
        low, high = found["median_tpot_ms"]
        found["output_tok_s_per_user"] = (1e3 / high, 1e3 / low)
    return found


def _carried(trial: Trial, found: Mapping[str, Ends], origin: str, *names: str) -> dict[str, Ends]:
    if origin not in found:
        return {}
    low, high = (end / trial.metrics[origin] for end in found[origin])
    own = {n: trial.metrics[n] for n in names if trial.metrics.get(n, math.nan) > 0}
    return {n: (value * low, value * high) for n, value in own.items()}


def widths(
    trials: Sequence[Trial], objectives: Sequence[str], *, is_open: bool
) -> dict[int, float]:
    """Returns ln(high / low) of the widest interval among the objectives, by trial number."""
    found = {}
    for trial in trials:
        intervals = intervals_of(trial, is_open=is_open)
        known = [intervals[m] for m in objectives if m in intervals]
        if known:
            found[trial.number] = max(math.log(high / low) for low, high in known)
    return found
