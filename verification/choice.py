"""Which trials to measure: apart on the frontier, and where a measurement would tell most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.errors import UserError
from dynosim.search.frontier import losses
from dynosim.search.metric import METRICS
from dynosim.search.objective import Objective
from dynosim.search.result import SearchResult
from dynosim.search.trial import Trial
from dynosim.verification.preference import Preference

FAR = math.log(1.2)
"""A dominated trial is a control where it is behind by 20 % in every objective at least."""
CLOSE = 0.05
"""A rival is within 5 % of the recommended trial, on balance."""

Widths = Mapping[int, float]
"""ln(high / low) of the predicted interval by trial number, of the widest objective."""


@dataclass(frozen=True, kw_only=True)
class Pick:
    """One trial to measure, and why. ``is_control`` tells a dominated one.

    ``trial`` has the metrics predicted for the load that is sent, ``searched`` those under the load
    of the run where that is another one.
    """

    trial: Trial
    reason: str
    is_control: bool = False
    searched: Trial | None = None

    @property
    def number(self) -> int:
        """The trial's number."""
        return self.trial.number


def choose(
    result: SearchResult,
    preference: Preference,
    *,
    top: int,
    dominated: int = 0,
    widths: Widths | None = None,
    runs_here: Callable[[Trial], bool] = lambda trial: True,
) -> list[Pick]:
    """Returns ``top`` trials to measure and ``dominated`` controls, each with its reason.

    First the recommended one; then, one after the other, that whose distance to all chosen,
    in the frontier's extent, times 1 + doubt + rivalry is largest. Doubt is the width of its
    predicted interval over the widest, rivalry how near it comes to the recommended one on
    balance. Where the frontier has fewer points, the trials least behind it follow. Of trials that
    cannot run where they would be measured (``runs_here``) none but the recommended one is picked.
    """
    found = _Choice(result, preference, widths or {}, runs_here)
    picks = [Pick(trial=preference.recommended, reason=f"the run's {preference.name}")]
    while len(picks) < top and (pick := found.next(picks)) is not None:
        picks.append(pick)
    picks += found.behind(top - len(picks), {p.number for p in picks})
    return picks + found.controls(dominated, {p.number for p in picks})


def named(result: SearchResult, numbers: Sequence[int]) -> list[Pick]:
    """Returns the trials of these numbers; UserError for one that no simulation gave metrics."""
    by_number = {t.number: t for t in result.trials}
    front = {t.number for t in result.frontier}
    picks = []
    for number in dict.fromkeys(numbers):
        trial = by_number.get(number)
        if trial is None:
            hint = f"allowed: 0 to {len(result.trials) - 1}"
            raise UserError(f"no trial {number}", where="--trials", hint=hint)
        if not trial.is_simulated:
            raise UserError(
                f"trial {number} was never simulated: {trial.detail or trial.reason}",
                where="--trials",
                hint="allowed: trials with metrics in trials.csv",
            )
        words = "named, on the frontier" if number in front else "named, not on the frontier"
        picks.append(Pick(trial=trial, reason=words, is_control=number not in front))
    return picks


class _Choice:
    """The points to choose from: where they are, how doubtful, how near to the recommended one."""

    def __init__(
        self,
        result: SearchResult,
        preference: Preference,
        widths: Widths,
        runs_here: Callable[[Trial], bool],
    ) -> None:
        self.result, self.preference, self.runs_here = result, preference, runs_here
        self.objectives = result.space.objectives
        self.points = [t for t in result.short_list if runs_here(t)]
        if all(t is not preference.recommended for t in self.points):
            self.points.append(preference.recommended)
        self.at = positions(self.points, self.objectives)
        widest = max((widths.get(t.number, 0.0) for t in self.points), default=0.0)
        self.widths = widths
        self.doubt = np.array([widths.get(t.number, 0.0) / (widest or 1.0) for t in self.points])
        best = preference.score(preference.recommended.metrics)
        self.gaps = np.array([abs(preference.score(t.metrics) - best) for t in self.points])
        most = float(np.nanmax(self.gaps, initial=0.0))
        self.rivalry = np.nan_to_num(1.0 - self.gaps / (most or 1.0))

    def next(self, picks: Sequence[Pick]) -> Pick | None:
        """Returns the point to measure after ``picks``; None where none is left."""
        chosen = {p.number for p in picks}
        taken = [i for i, t in enumerate(self.points) if t.number in chosen]
        left = [i for i in range(len(self.points)) if i not in taken]
        if not left:
            return None
        apart = np.linalg.norm(self.at[left][:, None] - self.at[taken][None], axis=2).min(axis=1)
        worth = apart * (1.0 + self.doubt[left] + self.rivalry[left])
        # Equal worths: the lower number, whatever the last bits of a distance.
        rounded = [round(float(w), 9) for w in worth]
        pairs = zip(rounded, left, strict=True)
        index = min(pairs, key=lambda pair: (-pair[0], self.points[pair[1]].number))[1]
        return Pick(trial=self.points[index], reason=self._reason(index))

    def _reason(self, index: int) -> str:
        words = []
        for k, objective in enumerate(self.objectives):
            if len(self.objectives) > 1 and self.at[index, k] == 1.0:
                label = METRICS[objective.metric].label
                words.append(f"the frontier's best {label[0].lower()}{label[1:]}")
        if not words:
            words.append("far from the others on the frontier")
        width = self.widths.get(self.points[index].number, 0.0)
        if width > 0 and self.doubt[index] == 1.0 and float(self.doubt.min()) < 1.0:
            words.append(f"widest predicted interval (a factor of {math.exp(width):.3g})")
        if self.gaps[index] <= CLOSE:
            other = self.preference.recommended.number
            words.append(
                f"a close rival of trial {other} ({math.expm1(self.gaps[index]):.1%} apart)"
            )
        return ", ".join(words)

    def behind(self, count: int, taken: set[int]) -> list[Pick]:
        """Returns the trials least behind the short list, where that has too few points."""
        if count <= 0:
            return []
        front = {t.number for t in self.result.frontier}
        return [
            Pick(
                trial=t,
                reason="on the frontier, within 1 % of another"
                if t.number in front
                else f"next behind the frontier, by {math.expm1(b):.1%}",
            )
            for b, t in self._ranked(taken)[:count]
        ]

    def controls(self, count: int, taken: set[int]) -> list[Pick]:
        """Returns dominated trials that are behind by FAR, spread from the nearest to the last.

        Where too few are that far, those furthest behind.
        """
        if count <= 0:
            return []
        front = {t.number for t in self.result.frontier}
        ranked = [(b, t) for b, t in self._ranked(taken) if t.number not in front]
        far = [row for row in ranked if row[0] >= FAR]
        rows = _spread(far, count) if len(far) >= count else ranked[-count:]
        return [
            Pick(trial=t, reason=f"control, {math.expm1(b):.0%} behind", is_control=True)
            for b, t in rows
        ]

    def _ranked(self, taken: set[int]) -> list[tuple[float, Trial]]:
        """Returns (how far behind, trial) of the other feasible trials, the nearest first."""
        others = [
            t
            for t in self.result.trials
            if t.is_feasible and t.number not in taken and self.runs_here(t)
        ]
        if not others:
            return []
        gaps = shortfalls(others, self.result.frontier, self.objectives)
        pairs = sorted((round(float(g), 9), t.number, t) for g, t in zip(gaps, others, strict=True))
        return [(gap, trial) for gap, _, trial in pairs]


def _spread(rows: Sequence[tuple[float, Trial]], count: int) -> list[tuple[float, Trial]]:
    """Returns ``count`` of the rows (no more than there are), each from the middle of its share."""
    return [rows[(2 * i + 1) * len(rows) // (2 * count)] for i in range(count)]


def positions(trials: Sequence[Trial], objectives: Sequence[Objective]) -> FloatArray:
    """Returns objectives from 0 (worst of these) to 1 (best), shape (trials, objectives).

    In logarithms where an objective is positive for all.
    """
    loss = losses(trials, objectives)
    signs = np.array([o.sign for o in objectives])
    values = -loss * signs
    is_positive = (values > 0).all(axis=0)
    scaled = np.where(is_positive, signs * np.log(np.where(is_positive, values, 1.0)), -loss)
    low, high = scaled.min(axis=0), scaled.max(axis=0)
    return np.asarray((scaled - low) / np.where(high > low, high - low, 1.0))


def shortfalls(
    trials: Sequence[Trial], front: Sequence[Trial], objectives: Sequence[Objective]
) -> FloatArray:
    """Returns by how much each trial is behind the frontier, in logarithms.

    The largest factor by which some point of the frontier is better in every objective at once
    (the multiplicative ε-indicator, Zitzler et al., IEEE Trans. Evol. Comput. 7, 2003).
    """
    ours, best = losses(trials, objectives), losses(front, objectives)
    both = np.abs(np.vstack((ours, best)))
    tiny = np.where(both.min(axis=0) > 0, 0.0, 1e-12)
    signs = np.array([o.sign for o in objectives])
    gaps = np.log(np.abs(best)[None] + tiny) - np.log(np.abs(ours)[:, None] + tiny)
    return np.asarray((gaps * signs).min(axis=2).max(axis=1))
