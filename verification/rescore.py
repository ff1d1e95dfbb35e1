"""The frontier again, in the light of what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dynosim.search.frontier import frontier
from dynosim.search.outcome import Outcome
from dynosim.search.result import SearchResult
from dynosim.search.trial import Trial, judge
from dynosim.sim.metrics import Metrics
from dynosim.verification.measured import Measured
from dynosim.verification.preference import Preference

Method = Literal["ratios", "simulate"]
KIND = (
    "backend",
    "gpu",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
)
"""Deployments that agree in these are of one kind: predictions of them err alike."""

METHODS: Mapping[Method, str] = {
    "ratios": "every simulated trial times the geometric mean of measured / predicted, metric by "
    "metric, of the measured trials of its backend, GPU and parallel sizes, or of all measured "
    "ones where none is of its kind; measured trials as measured",
    "simulate": "the short list simulated again with overheads fitted to the measurements; "
    "measured trials as measured",
}
_JUDGED_BY_METRICS = (None, "slo", "constraint")
"""Reasons of a trial that corrected metrics can change."""


@dataclass(frozen=True, kw_only=True)
class Rescored:
    """Trials with what is now known of them. ``winner`` is the preferred one, None for none.

    ``entered`` and ``left`` the frontier, by number. ``lead`` is by how much the winner is ahead of
    the recommended trial on the run's preference, as a share; 0 where it is the same.
    """

    method: Method
    trials: tuple[Trial, ...]
    frontier: tuple[Trial, ...]
    winner: int | None
    lead: float
    entered: tuple[int, ...]
    left: tuple[int, ...]


def rescore_by_ratios(
    result: SearchResult, measured: Sequence[Measured], preference: Preference
) -> Rescored:
    """Returns the frontier without a new simulation; see METHODS.

    Of the run's own predictions: also those of picks that were predicted anew for a shorter load.
    """
    ratios = _Ratios(measured)
    trials = [
        _judged(result, t, Outcome(metrics=ratios.corrected(t), timing=t.timing))
        for t in result.trials
        if t.is_simulated and t.reason in _JUDGED_BY_METRICS
    ]
    return _rescored("ratios", result, trials, preference)


def rescore_by_simulation(
    result: SearchResult,
    measured: Sequence[Measured],
    preference: Preference,
    simulate: Callable[[Trial], Outcome],
) -> Rescored:
    """Returns the frontier of the short list and the picks, simulated anew."""
    listed = {t.number: t for t in (*result.short_list, *(m.pick.trial for m in measured))}
    known = {m.pick.number: m.metrics for m in measured if m}
    trials = []
    for trial in listed.values():
        outcome = simulate(trial)
        metrics = {**outcome.metrics, **known.get(trial.number, {})}
        trials.append(_judged(result, trial, replace(outcome, metrics=metrics)))
    return _rescored("simulate", result, trials, preference)


class _Ratios:
    """ln(measured / predicted) by metric, of each kind of deployment and of all."""

    def __init__(self, measured: Sequence[Measured]) -> None:
        self._own: dict[int, dict[str, float]] = {}
        self._by_kind: dict[tuple[object, ...], list[dict[str, float]]] = {}
        for one in measured:
            if one:
                logs = _logs(one.pick.trial.metrics, one.metrics)
                self._own[one.pick.number] = logs
                self._by_kind.setdefault(_kind(one.pick.trial), []).append(logs)

    def corrected(self, trial: Trial) -> Metrics:
        """Returns a trial's metrics times what those like it were off by."""
        own = self._own.get(trial.number)
        like = self._by_kind.get(_kind(trial), list(self._own.values()))
        rows = like if own is None else [own]
        factors = {}
        for metric in {m for row in rows for m in row}:
            logs = [row[metric] for row in rows if metric in row]
            factors[metric] = math.exp(sum(logs) / len(logs))
        return {m: value * factors.get(m, 1.0) for m, value in trial.metrics.items()}


def _logs(predicted: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    return {
        m: math.log(value / predicted[m])
        for m, value in measured.items()
        if value > 0 and predicted.get(m, math.nan) > 0
    }


def _kind(trial: Trial) -> tuple[object, ...]:
    return tuple(getattr(trial.deployment, name) for name in KIND)


def _judged(result: SearchResult, trial: Trial, outcome: Outcome) -> Trial:
    space = result.space
    return judge(trial.number, trial.deployment, outcome, space.objectives, space.limits)


def _rescored(
    method: Method, result: SearchResult, trials: Sequence[Trial], preference: Preference
) -> Rescored:
    front = frontier(trials, result.space.objectives)
    before = {t.number for t in result.frontier} & {t.number for t in trials}
    after = {t.number for t in front}
    own = next((t for t in trials if t.number == preference.recommended.number), None)
    scores = {t.number: preference.score(t.metrics) for t in trials if t.is_feasible}
    scores = {number: score for number, score in scores.items() if not math.isnan(score)}
    best = max(scores.values(), default=math.nan)
    leaders = [number for number, score in scores.items() if score == best]
    # Of equals the recommended one stays.
    is_own = preference.recommended.number in leaders
    winner = preference.recommended.number if is_own else min(leaders, default=None)
    return Rescored(
        method=method,
        trials=tuple(trials),
        frontier=tuple(front),
        winner=winner,
        lead=_lead(preference, own, best),
        entered=tuple(sorted(after - before)),
        left=tuple(sorted(before - after)),
    )


def _lead(preference: Preference, own: Trial | None, best: float) -> float:
    if own is None or math.isnan(best):
        return math.nan
    if not own.is_feasible:
        return math.inf
    return math.expm1(best - preference.score(own.metrics))
