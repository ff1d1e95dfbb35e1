"""What the repeats of one pick measured, and how far they agree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from dynosim.accuracy.results.base import MeasuredRun
from dynosim.search.trial import Trial
from dynosim.sim.metrics import Metrics
from dynosim.verification.choice import Pick
from dynosim.verification.preference import Preference

DRIFT = 0.15
"""Repeats that differ by more decide nothing: on shared machines repeats differ by 4 to 15 %."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The metrics of every repeat of a pick, under this project's names.

    ``facts`` are what its engine said of itself, ``notes`` what a reader should know. ``failure``
    says why there are no repeats, ``has_died`` that it was the engine that failed.
    """

    pick: Pick
    repeats: tuple[Metrics, ...] = ()
    facts: Mapping[str, float | str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failure: str | None = None
    has_died: bool = False

    @cached_property
    def metrics(self) -> Metrics:
        """The median over the repeats of every metric that all of them have."""
        shared = [m for m in self.repeats[0] if all(m in r for r in self.repeats)] if self else []
        return {m: median(r[m] for r in self.repeats) for m in shared}

    @cached_property
    def under_run_load(self) -> Metrics:
        """The metrics as limits of the run judge them: as measured, under the load of the run.

        Where another load was sent, the run's prediction times measured / predicted.
        """
        predicted, searched = self.pick.trial.metrics, self.pick.searched
        if searched is None:
            return self.metrics
        return {
            m: searched.metrics[m] * value / predicted[m]
            for m, value in self.metrics.items()
            if m in searched.metrics and predicted.get(m, 0.0) > 0
        }

    def __bool__(self) -> bool:
        return bool(self.repeats)

    def spread(self, metric: str) -> float:
        """Returns (largest - smallest) / median over the repeats; NaN where there is but one."""
        centre = self.metrics.get(metric, math.nan)
        if len(self.repeats) < 2 or not centre > 0:
            return math.nan
        values = [r[metric] for r in self.repeats]
        return (max(values) - min(values)) / centre

    def score_spread(self, preference: Preference) -> float:
        """Returns how far the repeats' scores are apart, in logarithms; 0 where there is but one.

        A metric that is the deployment's own (its price) does not spread.
        """
        scores = [preference.score(r) for r in self.repeats]
        return max(scores) - min(scores) if scores else math.nan


def metrics_of_run(run: MeasuredRun) -> Metrics:
    """Returns a run's metrics with the token rates that follow from its lengths."""
    metrics = dict(run.measured)
    if rate := metrics.get("request_throughput"):
        metrics.setdefault("output_throughput", rate * run.output_tokens)
    if tok_s := metrics.get("output_throughput"):
        metrics["total_token_throughput"] = tok_s * (1 + run.input_tokens / run.output_tokens)
    return metrics


def with_derived(measured: Metrics, trial: Trial) -> Metrics:
    """Returns a client's metrics with those that follow from them, as a search has them.

    Per GPU and per user as in :mod:`dynosim.sim.metrics`; price, GPUs and quality are the
    deployment's own and are taken from the trial.
    """
    found = dict(measured)
    for kind in ("ttft", "tpot", "itl", "e2el"):
        # Two names of one figure; files of tools have either.
        pair = (f"median_{kind}_ms", f"p50_{kind}_ms")
        for name, twin in (pair, pair[::-1]):
            if twin in found:
                found.setdefault(name, found[twin])
    gpus = trial.metrics.get("num_gpus", float(trial.deployment.num_gpus))
    for name in ("num_gpus", "usd_per_hour", "quality"):
        if name in trial.metrics:
            found[name] = trial.metrics[name]
    if (tok_s := found.get("output_throughput", 0.0)) > 0:
        found["output_tok_s_per_gpu"] = tok_s / gpus
        if "usd_per_hour" in found:
            found["usd_per_million_output_tokens"] = found["usd_per_hour"] / (tok_s * 3600) * 1e6
    if "total_token_throughput" in found:
        found["total_tok_s_per_gpu"] = found["total_token_throughput"] / gpus
    if (tpot_ms := found.get("median_tpot_ms", 0.0)) > 0:
        found["output_tok_s_per_user"] = 1e3 / tpot_ms
    return found
