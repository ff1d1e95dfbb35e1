"""By what a run recommends one point of its frontier, as one number that measurements have too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynosim.search.bound import Limit
from dynosim.search.metric import METRICS
from dynosim.search.objective import Objective
from dynosim.search.result import SearchResult
from dynosim.search.trial import Trial

KNEE, CHEAPEST = "knee", "cheapest"
"""What a run marks a trial as."""


@dataclass(frozen=True, kw_only=True)
class Preference:
    """A weighted geometric mean of metrics, and the limits that a choice must keep.

    ``weights`` are by metric, their absolute values sum to 1, negative where less is better.
    ``recommended`` is the trial that the run marks; ``name`` says as what. ``objectives`` are the
    metrics that the run optimised.
    """

    weights: Mapping[str, float]
    objectives: tuple[str, ...]
    limits: tuple[Limit, ...]
    recommended: Trial
    name: str

    def score(self, metrics: Mapping[str, float]) -> float:
        """Returns the logarithm of the mean, larger is better; NaN where a metric is not known."""
        values = {m: metrics.get(m, math.nan) for m in self.weights}
        if not all(value > 0 for value in values.values()):
            return math.nan
        return sum(weight * math.log(values[m]) for m, weight in self.weights.items())

    @property
    def deciding(self) -> tuple[str, ...]:
        """The metrics that a verdict rests on."""
        limited = [limit.metric for limit in self.limits]
        return tuple(dict.fromkeys((*self.objectives, *self.weights, *limited)))

    def broken(self, metrics: Mapping[str, float]) -> tuple[Limit, ...]:
        """Returns the limits that known metrics miss; of what is not known nothing is said."""
        return tuple(x for x in self.limits if x.metric in metrics and x.violation(metrics) > 0)

    def text(self) -> str:
        """Returns the weights in words."""
        parts = [f"{abs(w):.0%} {METRICS[m].label}" for m, w in self.weights.items()]
        return " × ".join(parts)


def preference_of(result: SearchResult) -> Preference | None:
    """Returns the preference behind a run's knee, else behind its cheapest; None where no trial is
    feasible.

    The knee is the point whose objectives, normalised by the frontier's extent in logarithms, sum
    to most (:func:`dynosim.search.frontier.knee`): the same order as that of a geometric mean with
    weights inverse to the extents. The cheapest goes by price alone.
    """
    space = result.space
    objectives = tuple(o.metric for o in space.objectives)
    if result.knee is not None:
        weights = knee_weights(result.frontier, space.objectives)
        return Preference(
            weights=weights,
            objectives=objectives,
            limits=space.limits,
            recommended=result.knee,
            name=KNEE,
        )
    if result.cheapest is None:
        return None
    price = "usd_per_hour" if "usd_per_hour" in result.cheapest.metrics else "num_gpus"
    if not math.isfinite(result.cheapest.metrics.get(price, math.nan)):
        price = "num_gpus"
    return Preference(
        weights={price: -1.0},
        objectives=objectives,
        limits=space.limits,
        recommended=result.cheapest,
        name=CHEAPEST,
    )


def knee_weights(front: Sequence[Trial], objectives: Sequence[Objective]) -> dict[str, float]:
    """Returns the signed weight of each objective, inverse to the frontier's extent in it."""
    spans = {}
    for objective in objectives:
        values = [t.metrics[objective.metric] for t in front]
        spans[objective.metric] = (
            math.log(max(values) / min(values)) if min(values) > 0 else math.nan
        )
    known = {m: 1.0 / span for m, span in spans.items() if span > 0}
    if len(known) < len(objectives):
        known = {o.metric: 1.0 for o in objectives}
    total = sum(known.values())
    return {o.metric: o.sign * known[o.metric] / total for o in objectives}
