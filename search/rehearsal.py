"""What a search would do: size of the space, what cannot run and why, and how long it may take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynosim.search.defaults import estimator_of, full_screen, simulator, twin_finder
from dynosim.search.outcome import Evaluator, Screen
from dynosim.search.plan import Plan, plan_search
from dynosim.search.space import SearchSpace
from dynosim.search.study import load_workload, make_task
from dynosim.search.worker import evaluate
from dynosim.sim.workload.columns import Workload

PROBES = 3


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """``probe_s`` are the seconds that a few candidates took to simulate, one process each."""

    space: SearchSpace
    plan: Plan
    workload: Mapping[str, object]
    probe_s: tuple[float, ...]

    def estimate_s(self, workers: int) -> float:
        """Returns the estimated seconds of the whole search; 0 where nothing can run."""
        if not self.probe_s:
            return 0.0
        return self.plan.simulations * statistics.mean(self.probe_s) / workers

    def document(self, workers: int) -> dict[str, Any]:
        """Returns the report as plain values; ``estimate_s`` is with so many workers."""
        plan, space = self.plan, self.space
        return {
            "candidates": space.size,
            "fields": {d.name: list(d.values) for d in space.varied},
            "looked_at": plan.screened,
            "cannot_run": dict(plan.refused),
            "equivalent": plan.equivalent,
            "simulations": plan.simulations,
            "mode": plan.mode,
            "seed": space.seed,
            "objectives": [
                {"metric": o.metric, "direction": o.direction} for o in space.objectives
            ],
            "limits": [str(limit) for limit in space.limits],
            "workload": dict(self.workload),
            "workers": workers,
            "estimate_s": self.estimate_s(workers),
        }

    def lines(self, workers: int) -> list[str]:
        """Returns the report, a line each."""
        plan, space = self.plan, self.space
        fields = [f"  {d.name}: {', '.join(map(str, d.values))}" for d in space.varied]
        part = "" if plan.screened == space.size else f" (of {plan.screened} looked at)"
        refused = [
            f"  {n} {reason}, such as: {plan.examples[reason]}"
            for reason, n in plan.refused.items()
        ]
        same = f"{plan.equivalent} are equivalent to others and not simulated again"
        return [
            f"{space.size} candidates:",
            *fields,
            f"{sum(plan.refused.values())} cannot run{part}" + (":" if refused else ""),
            *refused,
            *([same] if plan.equivalent else []),
            f"{plan.simulations} simulations, {plan.mode}, seed {space.seed}",
            f"objectives: {', '.join(f'{o.direction} {o.metric}' for o in space.objectives)}",
            f"SLO: {', '.join(map(str, space.slos)) or 'none'}",
            *([f"constraints: {', '.join(map(str, space.bounds))}"] if space.bounds else []),
            f"about {self.estimate_s(workers):.0f} s with {workers} worker(s)",
        ]


def dry_run(
    space: SearchSpace,
    *,
    workload: Workload | None = None,
    evaluator: Evaluator | None = None,
    screen: Screen | None = None,
) -> DryRun:
    """Returns what ``search`` would do with ``space``, without doing it.

    A few candidates, spread over those that can run, are simulated to estimate the time.
    """
    load = load_workload(space, workload)
    screen = full_screen(space, load, screen)
    is_ours = evaluator is None
    plan = plan_search(
        space,
        screen,
        estimator_of(space, load) if is_ours else None,
        twin_finder(load) if is_ours else None,
    )
    return DryRun(
        space=space,
        plan=plan,
        workload=load.describe(),
        probe_s=_probe(space, load, evaluator or simulator(), screen),
    )


def _probe(
    space: SearchSpace, workload: Workload, evaluator: Evaluator, screen: Screen
) -> tuple[float, ...]:
    task = make_task(space, workload)
    taken = []
    # Steps of about 0.618 of the space: spread evenly for any number of probes.
    stride = max(1, round(space.size * 0.618))
    for i in range(min(space.size, 1000)):
        deployment = space.deployment(i * stride % space.size)
        if screen(deployment) is None:
            begin_s = time.perf_counter()
            evaluate(evaluator, deployment, task)
            taken.append(time.perf_counter() - begin_s)
        if len(taken) == PROBES:
            break
    return tuple(taken)
