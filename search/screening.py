"""From a space to what its proposer needs: who can run, and estimates of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.search.estimate.estimate import Estimates, Estimator
from dynosim.search.space import SearchSpace
from dynosim.sim.workload.columns import Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Screening:
    """``losses`` and ``margins`` as :class:`~dynosim.search.screened.ScreenedProposer` has them.

    ``is_whole`` says that ``candidates`` are all that can run, not what was looked at of a space
    too large for that.
    """

    candidates: Sequence[int] | IntArray
    losses: FloatArray
    margins: FloatArray
    is_whole: bool = True

    @staticmethod
    def joined(parts: Sequence[Screening]) -> Screening:
        """Returns several as one."""
        return Screening(
            candidates=np.concatenate([np.asarray(p.candidates, dtype=np.int64) for p in parts]),
            losses=np.concatenate([p.losses for p in parts]),
            margins=np.concatenate([p.margins for p in parts]),
            is_whole=all(p.is_whole for p in parts),
        )


Judge = Callable[[Sequence[int]], Screening | None]
"""Returns estimates of those of some flat indices that are new and can run; None without any."""

CHUNK = 8192
"""Candidates estimated at once: each is some kilobytes until its estimate is known."""


class SpaceEstimator:
    """Estimates candidates of a space under a workload."""

    def __init__(self, space: SearchSpace, workload: Workload) -> None:
        self._space, self._estimator = space, Estimator(workload)

    def __call__(self, candidates: Sequence[int]) -> Screening | None:
        """Returns estimates of ``candidates``; None where an objective has none at all."""
        parts = [
            self._estimated(candidates[begin : begin + CHUNK])
            for begin in range(0, len(candidates), CHUNK)
        ]
        whole = Screening.joined(parts) if parts else None
        is_known = whole is not None and np.isfinite(whole.losses).any(axis=0).all()
        return whole if is_known else None

    def _estimated(self, candidates: Sequence[int]) -> Screening:
        deployments = [self._space.deployment(i) for i in candidates]
        found = self._estimator.of(deployments)
        unknown = np.full(len(candidates), np.nan)
        columns = []
        for objective in self._space.objectives:
            values = found.metrics.get(objective.metric, unknown)
            with np.errstate(divide="ignore", invalid="ignore"):
                logarithm = np.log(np.where(values > 0.0, values, np.nan))
            columns.append(-objective.sign * logarithm)
        return Screening(
            candidates=np.asarray(candidates, dtype=np.int64),
            losses=np.column_stack(columns),
            margins=_margins(self._space, found),
        )


def _margins(space: SearchSpace, found: Estimates) -> FloatArray:
    """Returns by how much candidates miss the constraint that they miss by most."""
    with np.errstate(divide="ignore"):
        margins = np.log(found.use)
        margins = np.where(found.use > 0.0, margins, -np.inf)
        for slo in space.slos:
            if (values := found.metrics.get(slo.metric)) is not None:
                margins = np.fmax(margins, np.log(values / slo.limit_ms))
        for bound in space.bounds:
            values = found.metrics.get(bound.metric)
            if values is not None and bound.limit > 0:
                excess = np.log(values / bound.limit)
                margins = np.fmax(margins, -excess if bound.is_least else excess)
    return np.where(np.isnan(found.use), np.nan, np.maximum(margins, -9.0))
