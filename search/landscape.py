"""What is known of every candidate of a space after a search: simulated, or estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import BoolArray, FloatArray, IntArray
from dynosim.search.correction import Correction
from dynosim.search.frontier import losses
from dynosim.search.objective import Objective
from dynosim.search.screening import Screening
from dynosim.search.space import SearchSpace
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment


@dataclass(frozen=True, kw_only=True, eq=False)
class Landscape:
    """Objectives of the candidates that can run.

    ``indices``, shape (candidates,), are flat indices of ``space.grid``; ``log_losses``, shape
    (candidates, objectives), logarithms of the objectives, less is better; ``is_simulated`` says
    which of them a simulation gave.
    """

    space: SearchSpace
    indices: IntArray
    log_losses: FloatArray
    is_simulated: BoolArray

    @property
    def coordinates(self) -> IntArray:
        """Grid coordinates, shape (candidates, fields)."""
        return self.space.grid.coordinates_of(self.indices)


def landscape(
    space: SearchSpace, trials: Sequence[Trial], screening: Screening | None
) -> Landscape | None:
    """Returns what simulations and estimates, corrected by simulations, say of all candidates.

    Without ``screening`` the trials are all there is. None where an objective is not positive, so
    that it has no logarithm, or nothing ran.
    """
    found = _simulated(trials, space.objectives)
    if not found:
        return None
    if screening is None:
        indices, rows = _by_index(space, found)
        return Landscape(
            space=space,
            indices=indices,
            log_losses=rows,
            is_simulated=np.ones(len(indices), dtype=bool),
        )
    usable = np.isfinite(screening.losses).all(axis=1)
    indices = np.asarray(screening.candidates, dtype=np.int64)[usable]
    values = screening.losses[usable].copy()
    correction = Correction(space.grid, indices, values.shape[1])
    row_of = {index: row for row, index in enumerate(indices.tolist())}
    places = ((row_of.get(space.index_of(d)), own) for d, own in found.items())
    # In the order of rows: which errors are thinned out must not depend on that of the trials.
    simulated = dict(sorted((row, own) for row, own in places if row is not None))
    for row, own in simulated.items():
        correction.learn(row, own - values[row])
    values += correction.predict()[0]
    is_simulated = np.zeros(len(indices), dtype=bool)
    for row, own in simulated.items():
        values[row], is_simulated[row] = own, True
    return Landscape(space=space, indices=indices, log_losses=values, is_simulated=is_simulated)


def _simulated(
    trials: Sequence[Trial], objectives: Sequence[Objective]
) -> dict[Deployment, FloatArray]:
    """Returns log losses by deployment; empty where an objective is not positive somewhere."""
    ran = [t for t in trials if t.is_simulated and t.reason != "undefined_metric"]
    if not ran:
        return {}
    values = losses(ran, objectives)
    if not (np.isfinite(values).all() and (np.abs(values) > 0.0).all()):
        return {}
    signs = np.array([-o.sign for o in objectives])
    logs = signs * np.log(np.abs(values))
    return {trial.deployment: row for trial, row in zip(ran, logs, strict=True)}


def _by_index(
    space: SearchSpace, found: Mapping[Deployment, FloatArray]
) -> tuple[IntArray, FloatArray]:
    """Returns flat indices and values of deployments."""
    rows = {space.index_of(deployment): row for deployment, row in found.items()}
    return np.array(list(rows), dtype=np.int64), np.array(list(rows.values()))
