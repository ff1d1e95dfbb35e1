"""Simulates cases as they were run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dynosim.accuracy.case import Case
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.timing.source import weakest
from dynosim.sim.metrics import Metrics
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """A case and what was predicted for it; ``refusal`` says why where nothing was.

    ``basis`` is the provenance that vouches least among those of the step's parts.
    """

    case: Case
    predicted: Metrics
    basis: str = ""
    refusal: str | None = None

    def error(self, metric: str) -> float:
        """Returns predicted / measured - 1; NaN where either is missing."""
        measured = self.case.measured.get(metric, float("nan"))
        return self.predicted.get(metric, float("nan")) / measured - 1.0


def run_case(case: Case, overheads: Mapping[str, float] | None = None) -> Outcome:
    """Returns the outcome of one case, under ``overheads`` in place of the backend's own.

    What the case says of its own overheads holds over both.
    """
    load = case.workload
    workload = load if isinstance(load, Workload) else build_workload(load)
    figures = {**(overheads or {}), **case.overheads}
    try:
        simulation = simulate(case.deployment, workload, seed=case.seed, overheads=figures)
    except UserError as error:
        return Outcome(case=case, predicted={}, refusal=str(error).splitlines()[0])
    basis = weakest(simulation.timer.sources)
    return Outcome(case=case, predicted=simulation.metrics(), basis=basis)
