"""How sure the frontier is: its neighbourhood simulated again on other draws of the workload.

Every candidate sees the same draws (common random numbers), so that what differs between two of
them in one replicate is their doing. A point is non-dominated in a replicate where no other
candidate of the neighbourhood is better in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.search.executor import Executor
from dynosim.search.frontier import losses
from dynosim.search.outcome import Outcome, Task
from dynosim.search.outcome_cache import OutcomeCache
from dynosim.search.space import SearchSpace
from dynosim.search.trial import Trial, judge
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload

CLOSE = 0.05
"""Relative difference within which a trial may be on the frontier of another draw."""

MOST_RIVALS = 64
"""Trials that are simulated again at most, the frontier itself included."""

Start = Callable[[Task], tuple[Executor, OutcomeCache | None]]
"""Returns where to evaluate a task, and its cache."""


def neighbourhood(
    front: Sequence[Trial], trials: Sequence[Trial], space: SearchSpace
) -> list[Trial]:
    """Returns the frontier and the feasible trials within CLOSE of it, nearest first."""
    others = [t for t in trials if t.is_feasible and t not in front]
    if not front or not others:
        return list(front)
    best, theirs = losses(front, space.objectives), losses(others, space.objectives)
    behind = (theirs[:, None, :] - best[None, :, :]) / np.abs(best)[None, :, :]
    distance = behind.max(axis=2).min(axis=1)
    near = sorted((float(d), t.number) for d, t in zip(distance, others, strict=True) if d <= CLOSE)
    by_number = {t.number: t for t in others}
    return [*front, *(by_number[n] for _, n in near)][: max(MOST_RIVALS, len(front))]


def redrawn(space: SearchSpace, replicate: int) -> Workload:
    """Returns another draw of the space's workload; UserError for a trace, which is but one."""
    spec = space.workload
    if spec.trace is not None:
        raise UserError(
            "a trace is one draw and has no replicates",
            where="replicates",
            hint="describe the load (lengths_from, request_rate), or leave out replicates",
        )
    return build_workload(replace(spec, seed=spec.seed + 1_000_003 * replicate))


def shares_best(
    rivals: Sequence[Trial], space: SearchSpace, task: Task, count: int, start: Start
) -> dict[int, float]:
    """Returns in which share of ``count`` draws, the first included, each rival is non-dominated.

    By the trials' numbers. A rival that is infeasible in a draw is not non-dominated in it.
    """
    draws = [list(rivals)]
    for replicate in range(1, count):
        load = redrawn(space, replicate)
        own = replace(task, workload=load, seed=task.seed + replicate)
        executor, cache = start(own)
        try:
            found = _evaluate([t.deployment for t in rivals], executor, cache)
        finally:
            executor.close(at_once=True)
        draws.append(
            [
                judge(t.number, t.deployment, found[t.deployment], space.objectives, space.limits)
                for t in rivals
            ]
        )
    kept = np.mean([_non_dominated(draw, space) for draw in draws], axis=0)
    return {t.number: float(share) for t, share in zip(rivals, kept, strict=True)}


def _evaluate(
    deployments: Sequence[Deployment], executor: Executor, cache: OutcomeCache | None
) -> Mapping[Deployment, Outcome]:
    known = {d: cache.get(d) if cache is not None else None for d in deployments}
    found = {d: outcome for d, outcome in known.items() if outcome is not None}
    executor.submit([d for d in deployments if d not in found])
    while len(found) < len(deployments):
        for deployment, outcome in executor.collect(None):
            found[deployment] = outcome
            if cache is not None:
                cache.put(deployment, outcome)
    return found


def _non_dominated(draw: Sequence[Trial], space: SearchSpace) -> list[bool]:
    import moocore

    rows = [i for i, trial in enumerate(draw) if trial.is_feasible]
    kept = [False] * len(draw)
    if rows:
        points = losses([draw[i] for i in rows], space.objectives)
        for i, is_kept in zip(rows, moocore.is_nondominated(points, keep_weakly=True), strict=True):
            kept[i] = bool(is_kept)
    return kept
