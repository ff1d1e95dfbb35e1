"""The frontier without near duplicates: the simplest configuration within 1 % of the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynosim.hardware_models.arrays import BoolArray
from dynosim.search.frontier import losses
from dynosim.search.objective import Objective
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment

WITHIN = 0.01
"""Relative difference in an objective below which the simpler of two configurations is better."""

SHAPE = (
    "model",
    "gpu",
    "backend",
    "backend_version",
    "quantization",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "replicas",
    "prefill_replicas",
    "prefill_gpu",
    "prefill_tensor_parallel_size",
    "prefill_pipeline_parallel_size",
    "prefill_data_parallel_size",
)
"""What has to be chosen anyway; any other field that is not at its default is an override."""

Spelled = Callable[[Deployment], Deployment]
"""Returns a deployment with its defaults spelled out."""


def overrides(deployment: Deployment, spelled: Spelled = lambda d: d) -> dict[str, Any]:
    """Returns the fields that somebody would have to set, with their values."""
    fields: dict[str, Any] = {name: getattr(deployment, name) for name in SHAPE}
    own, plain = spelled(deployment), spelled(Deployment(**fields))
    return {
        name: getattr(deployment, name)
        for name in Deployment.__dataclass_fields__
        if name not in SHAPE and getattr(own, name) != getattr(plain, name)
    }


def short_list(
    front: Sequence[Trial],
    trials: Sequence[Trial],
    objectives: Sequence[Objective],
    spelled: Spelled = lambda d: d,
    *,
    first: Trial | None = None,
) -> list[Trial]:
    """Returns few feasible trials, one of them within WITHIN of every trial of the frontier.

    In every objective at once; of those that could stand for a point the one with the fewest
    overrides does, then the one with the fewest GPUs, then the one that stands for most. ``first``
    is a point of the frontier that stands for itself.
    """
    if not front:
        return []
    feasible = [t for t in trials if t.is_feasible]
    stands = covers(feasible, front, objectives)
    near = np.flatnonzero(stands.any(axis=1))
    cost = {int(i): len(overrides(feasible[i].deployment, spelled)) for i in near}
    left = np.ones(len(front), dtype=bool)
    chosen = [i for i, trial in enumerate(feasible) if trial is first]
    for kept in chosen:
        left &= ~stands[kept]
    for point in range(len(front)):
        if not left[point]:
            continue
        able = np.flatnonzero(stands[:, point])
        gains = (stands[able] & left).sum(axis=1)
        ranks = [
            (cost[int(i)], feasible[i].deployment.num_gpus, -gain, feasible[i].number, int(i))
            for i, gain in zip(able, gains.tolist(), strict=True)
        ]
        best = min(ranks)[-1]
        chosen.append(best)
        left &= ~stands[best]
    points = {feasible[i].number: feasible[i] for i in chosen}.values()
    signs = [o.sign for o in objectives]
    return sorted(points, key=lambda t: tuple(np.multiply(signs, t.values(objectives))))


def covers(
    trials: Sequence[Trial], front: Sequence[Trial], objectives: Sequence[Objective]
) -> BoolArray:
    """Returns which trials are within WITHIN of which points, shape (trials, front)."""
    ours, best = losses(trials, objectives), losses(front, objectives)
    limit = best + WITHIN * np.abs(best)
    return np.asarray((ours[:, None, :] <= limit[None, :, :]).all(axis=2))
