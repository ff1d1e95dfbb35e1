"""How peers search: random, coordinate descent, plain NSGA-II. Each proposes and is told."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import optuna

from dynosim.search.grid import Grid
from dynosim.search.proposer import _distributions
from dynosim.search.quiet_optuna import quiet_optuna
from dynosim.search.space import SearchSpace
from dynosim.search.trial import Trial

POPULATION = 32
MOST_REPEATS = 5000
"""Proposals in a row of what is known, after which NSGA-II has converged."""

KNOB_GROUPS = (
    ("model", "quantization"),
    ("gpu",),
    ("backend",),
    (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "enable_expert_parallel",
    ),
    ("replicas", "router"),
    ("max_num_seqs", "max_num_batched_tokens"),
)
"""What coordinate descent changes at once."""


class RandomSearch:
    """Every candidate in random order."""

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._order = iter(np.random.default_rng([seed, 11]).permutation(space.size).tolist())

    def propose(self) -> int | None:
        return next(self._order, None)

    def tell(self, index: int, trial: Trial) -> None:
        pass


class CoordinateDescent:
    """All values of one group of knobs, then of the next, from the best so far.

    Best by a weighted sum of the objectives' logarithms; once no group improves it starts again
    from a random candidate with other weights.
    """

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._space, self._grid = space, space.grid
        self._random = np.random.default_rng([seed, 12])
        self._known: dict[int, Trial] = {}
        self._steps = self._descents()

    def propose(self) -> int | None:
        return next(self._steps, None)

    def tell(self, index: int, trial: Trial) -> None:
        self._known[index] = trial

    def _descents(self) -> Iterator[int]:
        while len(self._known) < self._grid.size:
            weights = self._random.dirichlet(np.ones(len(self._space.objectives)))
            best = int(self._random.integers(self._grid.size))
            yield from self._unknown([best])
            before = None
            while best != before:
                before = best
                for group in self._random.permutation(len(KNOB_GROUPS)):
                    line = [best, *self._line(best, KNOB_GROUPS[group])]
                    yield from self._unknown(line)
                    best = min(line, key=lambda i: self._badness(self._known[i], weights))

    def _unknown(self, indices: list[int]) -> Iterator[int]:
        for index in indices:
            if index not in self._known:
                yield index

    def _line(self, index: int, group: tuple[str, ...]) -> list[int]:
        at = self._grid.coordinates(index)
        ranges = [
            range(length) if name in group else (own,)
            for name, length, own in zip(self._grid.names, self._grid.lengths, at, strict=True)
        ]
        return [self._grid.index(point) for point in product(*ranges)]

    def _badness(self, trial: Trial, weights: np.ndarray) -> float:
        if not trial.is_feasible:
            return 1e6 + max(trial.violations.values(), default=1e3)
        objectives = self._space.objectives
        signs = np.array([-o.sign for o in objectives])
        return float(weights @ (signs * np.log(trial.values(objectives))))


class GeneticSearch:
    """Optuna's NSGA-II as it comes; what it proposes again is answered from memory, for nothing."""

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._grid: Grid = space.grid
        self._objectives = space.objectives
        self._distributions = _distributions(space.grid)
        self._known: dict[int, Trial] = {}
        with quiet_optuna():
            sampler = optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=seed)
            directions = [o.direction for o in space.objectives]
            self._study = optuna.create_study(directions=directions, sampler=sampler)

    def propose(self) -> int | None:
        for _ in range(MOST_REPEATS):
            self._running = self._study.ask(self._distributions)
            at = [self._running.params.get(name, 0) for name in self._grid.names]
            index = self._grid.index(at)
            if index not in self._known:
                return index
            self.tell(index, self._known[index])
        return None

    def tell(self, index: int, trial: Trial) -> None:
        self._known[index] = trial
        for name, violation in trial.violations.items():
            self._running.set_constraint(name, violation)
        values = trial.values(self._objectives)
        if np.isfinite(values).all():
            self._study.tell(self._running, values)
        else:
            self._study.tell(self._running, state=optuna.trial.TrialState.FAIL)
