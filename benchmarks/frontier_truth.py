"""The true frontier of a space: every candidate simulated, and what parts of it are worth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import moocore
import numpy as np

from dynosim.search.frontier import frontier, losses
from dynosim.search.outcome import Outcome, Task
from dynosim.search.result import SearchResult
from dynosim.search.space import SearchSpace
from dynosim.search.study import search
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment

BEYOND = 0.1
"""How far the hypervolume's reference lies beyond the worst of the frontier, of its extent."""


@dataclass(frozen=True)
class Truth:
    """Every candidate's trial, simulated or refused."""

    space: SearchSpace
    trials: tuple[Trial, ...]

    @cached_property
    def by_deployment(self) -> dict[Deployment, Trial]:
        """Trials by candidate."""
        return {trial.deployment: trial for trial in self.trials}

    @cached_property
    def simulated(self) -> tuple[Trial, ...]:
        """The trials that took a simulation."""
        return tuple(t for t in self.trials if t.is_simulated)

    @cached_property
    def request_s(self) -> float:
        """Simulated request-seconds of all candidates."""
        return sum(map(request_seconds, self.simulated))

    def trial(self, index: int) -> Trial:
        """Returns the trial of a flat index of the space's grid."""
        return self.by_deployment[self.space.deployment(index)]

    def outcome(self, deployment: Deployment, task: Task) -> Outcome:
        """Answers in the simulator's place (an evaluator)."""
        trial = self.by_deployment[deployment]
        stable = trial.violations["stable_queue"]
        reason = None if trial.reason in ("slo", "unstable_queue") else trial.reason
        return Outcome(metrics=trial.metrics, reason=reason, instability=stable)

    def share(self, trials: Sequence[Trial]) -> float:
        """Returns the hypervolume of ``trials`` over that of all candidates."""
        return self._volume(trials) / self._whole

    @cached_property
    def _whole(self) -> float:
        return self._volume(self.trials)

    @cached_property
    def _corners(self) -> tuple[np.ndarray, np.ndarray]:
        points = losses(frontier(self.trials, self.space.objectives), self.space.objectives)
        return points.min(axis=0), points.max(axis=0)

    def _volume(self, trials: Iterable[Trial]) -> float:
        feasible = [t for t in trials if t.is_feasible]
        if not feasible:
            return 0.0
        ideal, nadir = self._corners
        points = (losses(feasible, self.space.objectives) - ideal) / (nadir - ideal)
        reference = np.full(points.shape[1], 1.0 + BEYOND)
        inside = points[(points < reference).all(axis=1)]
        return float(moocore.hypervolume(inside, ref=reference)) if len(inside) else 0.0


def request_seconds(trial: Trial) -> float:
    """Returns the seconds that requests spent in the simulated system, summed over them."""
    if not trial.metrics.get("completed"):
        return 0.0
    return trial.metrics["completed"] * trial.metrics["mean_e2el_ms"] / 1e3


def find_truth(space: SearchSpace, cache_dir: Path, workers: int) -> Truth:
    """Returns the truth of a space; what ``cache_dir`` has is not simulated again."""
    result: SearchResult = search(space, n_trials=space.size, workers=workers, cache_dir=cache_dir)
    assert result.mode == "exhaustive"
    return Truth(space, result.trials)
