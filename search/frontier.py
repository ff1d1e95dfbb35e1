"""The non-dominated trials, the area they cover, and the two that most users want."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.search.objective import Objective
from dynosim.search.trial import Trial

MIN_BULGE = 0.01
"""A knee stands out by 1 % of the frontier's normalised extent at least."""


def losses(trials: Sequence[Trial], objectives: Sequence[Objective]) -> FloatArray:
    """Returns objective values as an array (trials, objectives) in which less is better."""
    rows = [trial.values(objectives) for trial in trials]
    values: FloatArray = np.array(rows, dtype=np.float64).reshape(len(rows), len(objectives))
    signs: FloatArray = np.array([-o.sign for o in objectives])
    return values * signs


def frontier(trials: Sequence[Trial], objectives: Sequence[Objective]) -> list[Trial]:
    """Returns the feasible trials that no feasible trial dominates, best first objective last.

    Of trials with equal values, one stays: fewest GPUs, then the lowest number.
    """
    import moocore

    feasible = sorted(
        (t for t in trials if t.is_feasible), key=lambda t: (t.deployment.num_gpus, t.number)
    )
    if not feasible:
        return []
    points = losses(feasible, objectives)
    keep = moocore.is_nondominated(points, keep_weakly=False)
    chosen = [trial for trial, kept in zip(feasible, keep, strict=True) if kept]
    return sorted(chosen, key=lambda t: _order(t, objectives))


def _order(trial: Trial, objectives: Sequence[Objective]) -> tuple[float, ...]:
    signs = [o.sign for o in objectives]
    return tuple(s * v for s, v in zip(signs, trial.values(objectives), strict=True))


def hypervolume(
    front: Sequence[Trial], objectives: Sequence[Objective], reference: Sequence[float]
) -> float:
    """Returns the volume that ``front`` dominates up to ``reference``, in the objectives' units.

    Computed by moocore (Guerreiro, Fonseca and Paquete, ACM Computing Surveys 2021).
    """
    import moocore

    if not front:
        return 0.0
    signs = np.array([-o.sign for o in objectives])
    points = losses(front, objectives)
    limit = np.asarray(reference, dtype=np.float64) * signs
    inside = points[(points < limit).all(axis=1)]
    return float(moocore.hypervolume(inside, ref=limit)) if len(inside) else 0.0


def reference_point(trials: Sequence[Trial], objectives: Sequence[Objective]) -> tuple[float, ...]:
    """Returns the hypervolume's reference: 0 to be maximised, else the worst feasible value."""
    feasible = [t.values(objectives) for t in trials if t.is_feasible]
    return tuple(
        0.0 if o.sign > 0 else max((row[i] for row in feasible), default=math.inf)
        for i, o in enumerate(objectives)
    )


def knee(front: Sequence[Trial], objectives: Sequence[Objective]) -> Trial | None:
    """Returns the frontier's point farthest from the plane through its extremes, or None.

    Objectives are normalised to 0 (worst on the frontier) … 1 (best); the distance to the chord,
    or hyperplane, through the extremes then grows with their sum (Das, Structural Optimization
    18, 1999: "On characterizing the knee of the Pareto curve"). Objectives that are positive on
    the whole frontier are normalised by their logarithms, so that a gain of 10 % in one weighs as
    much as a loss of 10 % in the other: at a given arrival rate throughput per GPU is inverse in
    the number of GPUs, and on linear axes every such frontier is hollow. None where no point
    bulges beyond the plane by MIN_BULGE: fewer than three points, or a straight or hollow
    frontier.
    """
    if len(front) == 1:
        return front[0]
    if len(front) < 3 or len(objectives) < 2:
        return None
    points = _scaled(front, objectives)
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    bulge = ((points - low) / span).sum(axis=1) - 1.0
    best = int(bulge.argmax())
    return front[best] if bulge[best] >= MIN_BULGE else None


def _scaled(front: Sequence[Trial], objectives: Sequence[Objective]) -> FloatArray:
    """Returns objective values, more is better, as logarithms where all are positive."""
    values = np.abs(losses(front, objectives))
    is_positive = [all(t.metrics[o.metric] > 0 for t in front) for o in objectives]
    signs: FloatArray = np.array([o.sign for o in objectives])
    logarithms = np.log(np.where(is_positive, values, 1.0))
    scaled: FloatArray = np.where(is_positive, signs * logarithms, -losses(front, objectives))
    return scaled


def cheapest(trials: Sequence[Trial], objectives: Sequence[Objective]) -> Trial | None:
    """Returns the feasible trial with the lowest hourly price, or None.

    Priced by ``usd_per_hour`` where every feasible trial has it, else by number of GPUs; of
    equally cheap trials the one with the better last objective, then the others, wins.
    """
    feasible = [t for t in trials if t.is_feasible]
    if not feasible:
        return None
    is_priced = all(math.isfinite(t.metrics.get("usd_per_hour", math.nan)) for t in feasible)

    def price(trial: Trial) -> tuple[float, ...]:
        cost = trial.metrics["usd_per_hour"] if is_priced else float(trial.deployment.num_gpus)
        values = [-o.sign * v for o, v in zip(objectives, trial.values(objectives), strict=True)]
        return (cost, *reversed(values), trial.number)

    return min(feasible, key=price)
