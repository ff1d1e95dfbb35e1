"""A trial: one candidate deployment, what came out, and whether it may be chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dynosim.search.bound import Limit
from dynosim.search.metric import METRICS
from dynosim.search.metric_row import MetricRow
from dynosim.search.objective import Objective
from dynosim.search.outcome import Outcome, Reason
from dynosim.search.slo import Slo
from dynosim.sim.deployment import Deployment

NEVER_STARTS = 1e3
"""Constraint value of a candidate that gives no metrics: worse than any SLO missed in practice."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One row of the ledger. ``reason`` is None where the trial is feasible.

    ``violations`` are the study's constraints: kept where ≤ 0. The rest is the outcome's
    (:class:`dynosim.search.outcome.Outcome`).
    """

    number: int
    deployment: Deployment
    metrics: Mapping[str, float] = field(default_factory=dict)
    reason: Reason | None = None
    detail: str = ""
    traceback: str = ""
    timing: str = ""
    warnings: tuple[str, ...] = ()
    violations: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_feasible(self) -> bool:
        """Whether the trial keeps every constraint."""
        return self.reason is None

    @property
    def is_simulated(self) -> bool:
        """Whether a simulation gave metrics, feasible or not."""
        return bool(self.metrics)

    def values(self, objectives: Sequence[Objective]) -> tuple[float, ...]:
        """Returns the objectives' values; NaN where the trial has no such metric."""
        return tuple(self.metrics.get(o.metric, math.nan) for o in objectives)


def judge(
    number: int,
    deployment: Deployment,
    outcome: Outcome,
    objectives: Sequence[Objective],
    limits: Sequence[Limit],
) -> Trial:
    """Returns an outcome as a trial: the first constraint that does not hold names the reason."""
    reason, detail = outcome.reason, outcome.detail
    missed = [limit for limit in limits if limit.violation(outcome.metrics) > 0]
    undefined = [o.metric for o in objectives if not _is_finite(outcome.metrics, o.metric)]
    if reason is None and undefined:
        reason, detail = "undefined_metric", f"{', '.join(undefined)} has no finite value"
    elif reason is None and outcome.instability > 0:
        reason, detail = "unstable_queue", _overload(outcome.metrics)
    elif reason is None and missed:
        reason = "slo" if any(isinstance(limit, Slo) for limit in missed) else "constraint"
        detail = "; ".join(f"{limit}: {_found(outcome.metrics, limit)}" for limit in missed)
    starts = outcome.reason is None and not undefined
    violations = {"runs": -1.0 if starts else NEVER_STARTS, "stable_queue": outcome.instability}
    for limit in limits:
        excess = limit.violation(outcome.metrics)
        violations[str(limit)] = excess if math.isfinite(excess) else NEVER_STARTS
    return Trial(
        number=number,
        deployment=deployment,
        metrics=MetricRow(outcome.metrics),
        reason=reason,
        detail=detail,
        traceback=outcome.traceback,
        timing=outcome.timing,
        warnings=outcome.warnings,
        violations=violations,
    )


def _overload(metrics: Mapping[str, float]) -> str:
    text = "requests arrive faster than they are served"
    if "median_queue_ms" not in metrics:
        return text
    median_s, tail_s = (metrics[f"{name}_queue_ms"] / 1e3 for name in ("median", "p99"))
    return f"{text}: queue time {median_s:.3g} s in the median, {tail_s:.3g} s at p99"


def _found(metrics: Mapping[str, float], limit: Limit) -> str:
    if limit.metric not in metrics:
        return "not reported"
    return f"found {metrics[limit.metric]:.4g} {METRICS[limit.metric].unit}".strip()


def _is_finite(metrics: Mapping[str, float], name: str) -> bool:
    return math.isfinite(metrics.get(name, math.nan))
