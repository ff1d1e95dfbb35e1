"""Where two engines first do something else on the same load and the same clock."""

from __future__ import annotations

from itertools import zip_longest

from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.stepped.clocks import Replayed
from dynosim.verification.stepped.engine import StepEngine
from dynosim.verification.stepped.run import SteppedRun, run_stepped


def replayed(plan: LoadPlan, engine: StepEngine, measured: SteppedRun) -> SteppedRun:
    """Returns the run of ``engine`` under the same load, on the clock of a measured run."""
    steps = measured.warmup_steps + measured.steps
    return run_stepped(plan, engine, Replayed(step.cost_s for step in steps))


def first_difference(one: SteppedRun, other: SteppedRun) -> str | None:
    """Returns the first step that is not the same in both, in words; None where all are.

    Steps are the same where they compute the same tokens of the same requests, preempt, answer and
    finish the same.
    """
    a, b = (run.warmup_steps + run.steps for run in (one, other))
    for number, (theirs, ours) in enumerate(zip_longest(a, b)):
        if theirs is None or ours is None:
            return f"step {number}: {len(a)} steps against {len(b)}"
        if theirs.did != ours.did:
            return f"step {number}:\n  {theirs.did}\n  {ours.did}"
    return None
