"""How the hypervolume grew with the simulations, and when it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynosim.search.frontier import frontier, hypervolume, reference_point
from dynosim.search.objective import Objective
from dynosim.search.trial import Trial


@dataclass(frozen=True)
class Gain:
    """The hypervolume after ``simulations`` of them, where the last one made it larger."""

    simulations: int
    trial: int
    hypervolume: float


@dataclass(frozen=True)
class Convergence:
    """Every gain of a search that simulated ``simulations`` candidates."""

    gains: tuple[Gain, ...]
    simulations: int

    @property
    def idle(self) -> int:
        """Simulations since the last gain."""
        return self.simulations - (self.gains[-1].simulations if self.gains else 0)

    def after(self, share: float) -> int:
        """Returns the simulations after which ``share`` of the final hypervolume was reached."""
        goal = share * self.gains[-1].hypervolume if self.gains else 0.0
        return next((g.simulations for g in self.gains if g.hypervolume >= goal), 0)


def convergence(trials: Sequence[Trial], objectives: Sequence[Objective]) -> Convergence:
    """Returns how the hypervolume grew over ``trials`` in the order of their numbers.

    The reference is that of all trials, so that the last value is the search's own.
    """
    reference = reference_point(trials, objectives)
    front: list[Trial] = []
    gains: list[Gain] = []
    simulations = 0
    for trial in trials:
        simulations += trial.is_simulated
        if not trial.is_feasible:
            continue
        joined = frontier([*front, trial], objectives)
        if trial not in joined:
            continue
        front = joined
        volume = hypervolume(front, objectives, reference)
        if not gains or volume > gains[-1].hypervolume:
            gains.append(Gain(simulations, trial.number, volume))
    return Convergence(tuple(gains), simulations)
