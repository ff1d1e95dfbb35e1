"""Whether the simulator makes the steps that an engine made, on that engine's clock."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import cluster_spec, plan_pool
from dynosim.sim.workload.columns import Workload
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.stepped.clocks import Replayed
from dynosim.verification.stepped.parity import first_difference
from dynosim.verification.stepped.run import SteppedRun, run_stepped
from dynosim.verification.stepped.simulated import SimulatedEngine
from dynosim.verification.stepped.step_record import StepRecord


def twin_of(deployment: Deployment, load: Workload) -> SimulatedEngine:
    """Returns the simulator's engine with a deployment's limits, one step at a time."""
    planned, _ = plan_pool(deployment, load)
    spec = cluster_spec(deployment, planned, leap=False)
    return SimulatedEngine(spec.timer, spec.limits, spec.num_blocks)


def difference(
    deployment: Deployment, load: Workload, plan: LoadPlan, steps: Sequence[StepRecord], warmup: int
) -> str | None:
    """Returns the first step that the simulator does not make too, in words; None where it makes
    all of them. ``steps`` are those of an engine with ``deployment``'s limits."""
    return difference_to(twin_of(deployment, load), plan, steps, warmup)


def difference_to(
    twin: SimulatedEngine, plan: LoadPlan, steps: Sequence[StepRecord], warmup: int
) -> str | None:
    """Returns the first of ``steps`` that ``twin`` does not make too; None where it makes all.

    They are an engine's under ``plan``, ``warmup`` of them before the load. Steps are the same
    where they compute the same tokens of the same requests and preempt and finish the same.
    """
    ours = run_stepped(plan, twin, Replayed(step.cost_s for step in steps))
    theirs = SteppedRun(
        observed=ours.observed, steps=tuple(steps[warmup:]), warmup_steps=tuple(steps[:warmup])
    )
    return first_difference(theirs, ours)
