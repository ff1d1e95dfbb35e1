"""Why a trial is not on the frontier: which point is better, by how much, and what it does else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynosim.search.frontier import losses
from dynosim.search.objective import Objective
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment


@dataclass(frozen=True)
class Dominator:
    """A trial of the frontier that is at least as good in everything.

    ``gains`` are relative by metric, positive where better; ``changes`` maps fields to the values
    of the dominated trial and of this one.
    """

    trial: Trial
    gains: Mapping[str, float]
    changes: Mapping[str, tuple[Any, Any]]


def dominator(
    trial: Trial, front: Sequence[Trial], objectives: Sequence[Objective]
) -> Dominator | None:
    """Returns the point of the frontier that dominates ``trial``; None where none does.

    Of several the one whose smallest relative gain is largest: no objective explains it away.
    """
    others = [t for t in front if t is not trial]
    if not others or not trial.is_simulated:
        return None
    own, theirs = losses([trial], objectives)[0], losses(others, objectives)
    able = np.flatnonzero((theirs <= own).all(axis=1))
    if not len(able):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = np.where(own == theirs, 0.0, (own - theirs) / np.abs(own))
    best = int(max(able, key=lambda i: (gains[i].min(), gains[i].sum(), -i)))
    names = [o.metric for o in objectives]
    return Dominator(
        others[best],
        dict(zip(names, gains[best].tolist(), strict=True)),
        changes(trial.deployment, others[best].deployment),
    )


def changes(one: Deployment, other: Deployment) -> dict[str, tuple[Any, Any]]:
    """Returns the fields in which two deployments differ, with both values."""
    pairs = ((n, getattr(one, n), getattr(other, n)) for n in Deployment.__dataclass_fields__)
    return {name: (own, theirs) for name, own, theirs in pairs if own != theirs}
