"""The owner of a search: it alone proposes, numbers, judges and records; workers only evaluate.

Candidates are proposed in generations of fixed size. While one generation runs, the next is
proposed, knowing every generation but the running one; results are told in the order of the
trials' numbers. So proposals never depend on how many workers there are or which ends first, and
a resumed search is the same search with some answers already in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dynosim.search.executor import Executor
from dynosim.search.ledger import Ledger
from dynosim.search.outcome import Outcome, Screen
from dynosim.search.outcome_cache import OutcomeCache
from dynosim.search.proposer import Proposer
from dynosim.search.result import Ending
from dynosim.search.space import SearchSpace
from dynosim.search.trial import Trial, judge
from dynosim.search.uninterrupted import uninterrupted
from dynosim.sim.deployment import Deployment

GENERATION = 16
MAX_SCREENED_PER_TRIAL = 10
"""Proposals refused before simulation that a search accepts per simulation it was given."""


@dataclass(frozen=True)
class Candidate:
    """A proposal that needs a simulation."""

    number: int
    index: int
    deployment: Deployment


OnTrial = Callable[[Trial], None]


@dataclass(kw_only=True)
class Owner:
    """Runs a search to its end; ``trials`` holds what has ended, by number."""

    space: SearchSpace
    proposer: Proposer
    screen: Screen
    executor: Executor
    deadline_s: float | None = None
    ledger: Ledger | None = None
    cache: OutcomeCache | None = None
    on_trial: OnTrial = lambda trial: None
    trials: dict[int, Trial] = field(default_factory=dict)
    simulated_here: int = 0
    _proposed: int = 0
    _to_simulate: int = 0
    _waiting: dict[Deployment, Candidate] = field(default_factory=dict)

    @property
    def ended(self) -> tuple[Trial, ...]:
        """The trials that have ended, by number."""
        return tuple(trial for _, trial in sorted(self.trials.items()))

    def run(self) -> Ending:
        """Returns why the search ended; Ctrl-C and a passed deadline leave the trials so far."""
        try:
            running = self._next_generation()
            while running:
                following = self._next_generation()
                self._finish(running)
                running = following
        except KeyboardInterrupt:
            self.executor.close(at_once=True)
            return "interrupted"
        except _OutOfTime:
            self.executor.close(at_once=True)
            return "timeout"
        self.executor.close()
        return "finished"

    def _next_generation(self) -> list[Candidate]:
        """Returns the next proposals and has their evaluation started."""
        generation: list[Candidate] = []
        while len(generation) < GENERATION and self._to_simulate < self.space.n_trials:
            candidate = self._propose()
            if candidate is None:
                break
            if candidate.number not in self.trials:
                generation.append(candidate)
                self._to_simulate += 1
        self._start(generation)
        return generation

    def _propose(self) -> Candidate | None:
        self._check_time()
        self._collect(0)  # What ends while the next generation is proposed is on disk at once.
        if self._proposed - self._to_simulate > MAX_SCREENED_PER_TRIAL * (self.space.n_trials + 10):
            return None
        index = self.proposer.propose()
        if index is None:
            return None
        candidate = Candidate(self._proposed, index, self.space.deployment(index))
        self._proposed += 1
        refusal = self.screen(candidate.deployment)
        if refusal is not None:
            self._end(candidate, refusal)
            self.proposer.tell(index, self.trials[candidate.number])
        return candidate

    def _start(self, generation: list[Candidate]) -> None:
        for candidate in generation:
            known = self._known(candidate.deployment)
            if known is not None:
                self._end(candidate, known)
        self.executor.submit([c.deployment for c in generation if c.number not in self.trials])
        self._waiting |= {c.deployment: c for c in generation if c.number not in self.trials}

    def _known(self, deployment: Deployment) -> Outcome | None:
        """Returns an outcome that an earlier run left, in its ledger or in the cache."""
        if self.ledger is not None and (found := self.ledger.take(deployment)) is not None:
            return found
        return None if self.cache is None else self.cache.get(deployment)

    def _finish(self, generation: list[Candidate]) -> None:
        """Waits for a generation, then tells it in order."""
        while any(c.deployment in self._waiting for c in generation):
            self._check_time()
            self._collect(None if self.deadline_s is None else self.deadline_s - time.monotonic())
        for candidate in generation:
            self.proposer.tell(candidate.index, self.trials[candidate.number])

    def _collect(self, timeout_s: float | None) -> None:
        for deployment, outcome in self.executor.collect(timeout_s):
            self.simulated_here += 1
            if self.cache is not None:
                self.cache.put(deployment, outcome)
            self._end(self._waiting.pop(deployment), outcome)

    def _end(self, candidate: Candidate, outcome: Outcome) -> None:
        trial = judge(
            candidate.number,
            candidate.deployment,
            outcome,
            self.space.objectives,
            self.space.limits,
        )
        with uninterrupted():
            if self.ledger is not None and not self.ledger.holds(trial.deployment):
                self.ledger.record(trial, outcome)
            self.trials[trial.number] = trial
        self.on_trial(trial)

    def _check_time(self) -> None:
        if self.deadline_s is not None and time.monotonic() >= self.deadline_s:
            raise _OutOfTime


class _OutOfTime(Exception):
    """The deadline has passed."""
