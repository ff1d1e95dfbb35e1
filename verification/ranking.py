"""Whether measurements put the picks in the predicted order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from dynosim.verification.measured import Measured
from dynosim.verification.preference import Preference


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two picks whose predicted difference exceeds the noise; gaps are logarithms of ratios."""

    first: int
    second: int
    predicted: float
    measured: float

    @property
    def is_kept(self) -> bool:
        """Whether the measured order is the predicted one."""
        return self.predicted * self.measured > 0


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Order by one metric. ``tau`` is Kendall's, NaN for fewer than two picks or all equal.

    ``pairs`` are those that the noise could not turn.
    """

    metric: str
    tau: float
    pairs: tuple[Pair, ...]

    @property
    def kept(self) -> int:
        """How many of the pairs are in the predicted order."""
        return sum(pair.is_kept for pair in self.pairs)


def rank(measured: Sequence[Measured], metric: str) -> Ranking:
    """Returns how the picks' measured order by a metric agrees with the predicted one."""
    found = [m for m in measured if _has(m, metric)]
    return _ranking(
        metric,
        found,
        predicted=lambda m: math.log(m.pick.trial.metrics[metric]),
        observed=lambda m: math.log(m.metrics[metric]),
        noise=lambda m: m.spread(metric),
    )


def rank_by_preference(measured: Sequence[Measured], preference: Preference) -> Ranking:
    """Returns the same for the run's preference."""
    found = [
        m
        for m in measured
        if m
        and not math.isnan(preference.score(m.metrics))
        and not math.isnan(preference.score(m.pick.trial.metrics))
    ]
    return _ranking(
        "preference",
        found,
        predicted=lambda m: preference.score(m.pick.trial.metrics),
        observed=lambda m: preference.score(m.metrics),
        noise=lambda m: m.score_spread(preference),
    )


def _has(measured: Measured, metric: str) -> bool:
    sides = (measured.metrics, measured.pick.trial.metrics)
    return all(side.get(metric, math.nan) > 0 for side in sides)


def _ranking(
    metric: str,
    found: Sequence[Measured],
    *,
    predicted: Callable[[Measured], float],
    observed: Callable[[Measured], float],
    noise: Callable[[Measured], float],
) -> Ranking:
    pairs = []
    for one, other in combinations(found, 2):
        gap = predicted(one) - predicted(other)
        if abs(gap) > joint_noise(noise(one), noise(other)):
            pairs.append(
                Pair(
                    first=one.pick.number,
                    second=other.pick.number,
                    predicted=gap,
                    measured=observed(one) - observed(other),
                )
            )
    tau = kendall_tau([predicted(m) for m in found], [observed(m) for m in found])
    return Ranking(metric=metric, tau=tau, pairs=tuple(pairs))


def joint_noise(one: float, other: float) -> float:
    """Returns the noise of a difference of two medians; unknown noise (NaN) counts as none."""
    return math.hypot(*(0.0 if math.isnan(x) else x for x in (one, other)))


def kendall_tau(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Returns Kendall's τ-b, 1 for the same order and -1 for the reverse."""
    if len(set(predicted)) < 2 or len(set(measured)) < 2:
        return math.nan
    from scipy.stats import kendalltau

    return float(kendalltau(predicted, measured).statistic)
