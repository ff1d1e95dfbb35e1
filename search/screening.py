"""From a space to what its proposer needs: who can run, and estimates of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.search.estimate.estimate import estimate
from dynosim.search.space import SearchSpace
from dynosim.sim.workload.columns import Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Screening:
    """``losses`` and ``margins`` as :class:`~dynosim.search.screened.ScreenedProposer` has them."""

    candidates: Sequence[int]
    losses: FloatArray
    margins: FloatArray


def screen_space(
    space: SearchSpace, workload: Workload, candidates: Sequence[int]
) -> Screening | None:
    """Returns estimates of ``candidates``; None where an objective has none at all."""
    estimates = estimate([space.deployment(i) for i in candidates], workload)
    columns = []
    for objective in space.objectives:
        values = estimates.metrics.get(objective.metric)
        if values is None or not (values > 0).any():
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            columns.append(-objective.sign * np.log(values))
    with np.errstate(divide="ignore"):
        margins = np.log(estimates.use)
        margins = np.where(estimates.use > 0.0, margins, -np.inf)
        for slo in space.slos:
            if (values := estimates.metrics.get(slo.metric)) is not None:
                margins = np.fmax(margins, np.log(values / slo.limit_ms))
        for bound in space.bounds:
            values = estimates.metrics.get(bound.metric)
            if values is not None and bound.limit > 0:
                excess = np.log(values / bound.limit)
                margins = np.fmax(margins, -excess if bound.is_least else excess)
    margins = np.where(np.isnan(estimates.use), np.nan, np.maximum(margins, -9.0))
    return Screening(candidates=candidates, losses=np.column_stack(columns), margins=margins)
