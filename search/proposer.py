"""Which candidate to try next. Proposals depend on seed, space and told trials, on nothing else.

A candidate is its flat index in the grid of the space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dynosim.search.grid import Grid
from dynosim.search.objective import Objective
from dynosim.search.quiet_optuna import quiet_optuna
from dynosim.search.trial import Trial

if TYPE_CHECKING:
    import optuna

STARTUP = 32
"""Candidates spread over the space before the sampler takes over: two generations."""

MAX_WALK = 64
"""Steps of the walk to a candidate that is new, before the next free index is taken."""


class Proposer(Protocol):
    """Proposes each candidate once."""

    def propose(self) -> int | None:
        """Returns the next candidate; None when every one has been proposed."""

    def tell(self, index: int, trial: Trial) -> None:
        """Learns from a finished trial."""


class ExhaustiveProposer:
    """Proposes every candidate but ``left_out`` in the grid's order (the last field is fastest)."""

    def __init__(self, grid: Grid, left_out: Collection[int] = ()) -> None:
        self._indices = (i for i in range(grid.size) if i not in left_out)

    def propose(self) -> int | None:
        return next(self._indices, None)

    def tell(self, index: int, trial: Trial) -> None:
        pass


class TpeProposer:
    """Latin hypercube first, then Optuna's multivariate multi-objective TPE with constraints.

    The sampler sees grid coordinates: an ordered field as a whole number, so that it learns that
    16 and 32 are neighbours, any other as a category. What it proposes twice leads to an untried
    neighbour, a random walk away. Of flat indices that mean one candidate ``normal`` names one.
    """

    def __init__(
        self,
        grid: Grid,
        objectives: tuple[Objective, ...],
        seed: int,
        normal: Callable[[int], int] = int,
    ) -> None:
        self._grid, self._normal = grid, normal
        self._random = np.random.default_rng([seed, 1])
        self._spread = _latin_hypercube(grid, np.random.default_rng([seed, 2]))
        self._seen: set[int] = set()
        self._unsimulated = 0
        self._running: dict[int, optuna.Trial] = {}
        self._objectives = objectives
        self._distributions = _distributions(grid)
        self._study = _study(objectives, seed)

    def propose(self) -> int | None:
        is_startup = len(self._seen) - self._unsimulated < STARTUP
        wanted = next(self._spread) if is_startup else self._ask()
        index = self._nearest_new(wanted)
        if index is None:
            return None
        self._seen.add(index)
        # A running trial with the candidate's own coordinates: TPE keeps away from it meanwhile.
        self._study.enqueue_trial(self._params(index))
        self._running[index] = self._study.ask(self._distributions)
        return index

    def tell(self, index: int, trial: Trial) -> None:
        import optuna

        running = self._running.pop(index)
        for name, violation in trial.violations.items():
            running.set_constraint(name, violation)
        values = trial.values(self._objectives)
        if all(math.isfinite(v) for v in values):
            self._study.tell(running, values)
        else:
            self._study.tell(running, state=optuna.trial.TrialState.PRUNED)
            self._unsimulated += 1

    def _ask(self) -> list[int]:
        import optuna

        trial = self._study.ask(self._distributions)
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        fixed = [0] * len(self._grid.lengths)
        for name, value in trial.params.items():
            fixed[self._grid.names.index(name)] = value
        return fixed

    def _params(self, index: int) -> dict[str, int]:
        coordinates = dict(zip(self._grid.names, self._grid.coordinates(index), strict=True))
        return {name: coordinates[name] for name in self._distributions}

    def _nearest_new(self, wanted: list[int]) -> int | None:
        grid, here = self._grid, list(wanted)
        varied = [axis for axis, length in enumerate(grid.lengths) if length > 1]
        for _ in range(MAX_WALK):
            index = self._normal(grid.index(here))
            if index not in self._seen:
                return index
            if not varied:
                return None
            axis = int(self._random.choice(varied))
            here[axis] = self._neighbour(axis, here[axis])
        start = grid.index(here)
        onward = (self._normal((start + i) % grid.size) for i in range(grid.size))
        return next((index for index in onward if index not in self._seen), None)

    def _neighbour(self, axis: int, at: int) -> int:
        length = self._grid.lengths[axis]
        if not self._grid.is_ordered[axis]:
            return int(at + self._random.integers(1, length)) % length
        step = 1 if self._random.random() < 0.5 else -1
        return at + step if 0 <= at + step < length else at - step


def _distributions(grid: Grid) -> dict[str, optuna.distributions.BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        name: IntDistribution(0, length - 1)
        if is_ordered
        else CategoricalDistribution(tuple(range(length)))
        for name, length, is_ordered in zip(grid.names, grid.lengths, grid.is_ordered, strict=True)
        if length > 1
    }


def _study(objectives: tuple[Objective, ...], seed: int) -> optuna.Study:
    import optuna

    with quiet_optuna():
        # Startup is the Latin hypercube's: the sampler itself is never asked before it.
        sampler = optuna.samplers.TPESampler(multivariate=True, n_startup_trials=1, seed=seed)
        return optuna.create_study(directions=[o.direction for o in objectives], sampler=sampler)


def _latin_hypercube(grid: Grid, random: np.random.Generator) -> Iterator[list[int]]:
    """Yields grid coordinates, each block of STARTUP of them spread evenly along every axis."""
    while True:
        strata = [random.permutation(STARTUP) for _ in grid.lengths]
        offsets = random.random((STARTUP, len(grid.lengths)))
        for i in range(STARTUP):
            yield [
                int((strata[axis][i] + offsets[i, axis]) / STARTUP * length)
                for axis, length in enumerate(grid.lengths)
            ]
