"""What was measured, fed back: overheads fitted to it, as ``dynosim calibrate fit`` does."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.accuracy.calibrate import Calibrated, calibrate_own
from dynosim.accuracy.case import Case
from dynosim.accuracy.fit import Tell
from dynosim.accuracy.predictions import Predictions
from dynosim.sim.workload.columns import Workload
from dynosim.verification.measured import Measured


def fit_overheads(
    measured: Sequence[Measured],
    load: Workload,
    *,
    seed: int = 0,
    jobs: int = 1,
    tell: Tell = lambda line: None,
) -> Calibrated:
    """Returns overheads fitted to the measured trials, each a case and held out in its turn."""
    cases = [case_of(one, load, seed) for one in measured if one]
    return calibrate_own(cases, Predictions(jobs=jobs), tell)


def case_of(measured: Measured, load: Workload, seed: int = 0) -> Case:
    """Returns the case of one measured trial: the medians of its repeats."""
    name = f"trial {measured.pick.number}"
    return Case(
        set="dynosim verify",
        group=name,
        row=name,
        deployment=measured.pick.trial.deployment,
        workload=load,
        measured=measured.metrics,
        seed=seed,
    )
