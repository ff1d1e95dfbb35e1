"""A validation from end to end: measured sets in, outcomes and errors out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dynosim.accuracy.errors import Residual, residuals
from dynosim.accuracy.measured_set import MeasuredSet, load_sets
from dynosim.accuracy.peers import PeerScore, peer_scores
from dynosim.accuracy.run import Outcome, Report, num_requests, run_cases

Begin = Callable[[int, int], Report]
"""Told how many cases and requests are to come; returns whom to tell of every case."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Validation:
    """The outcomes of all cases in the order of ``sets``, and what peers score on the same rows."""

    sets: tuple[MeasuredSet, ...]
    outcomes: tuple[Outcome, ...]
    peers: tuple[PeerScore, ...]

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """One residual a case and metric."""
        return tuple(residuals(self.outcomes))

    @property
    def refused(self) -> Mapping[str, Counter[str]]:
        """Why cases were not simulated, and how many for each reason, by set."""
        counts = {s.name: Counter[str]() for s in self.sets}
        for outcome in self.outcomes:
            if outcome.refusal is not None:
                counts[outcome.case.set][outcome.refusal] += 1
        return counts


def validate(
    data: Path | None = None,
    *,
    sets: Sequence[str] = (),
    sample: int | None = None,
    jobs: int = 1,
    overheads: Mapping[str, float] | None = None,
    begin: Begin = lambda cases, requests: lambda done: None,
) -> Validation:
    """Returns the validation against the named sets, or against all that are at hand.

    ``data`` is the folder of measured sets, None for those of the published package; ``sample``
    bounds the cases of a set; ``overheads`` replace figures of every backend. Raises UserError
    for unknown or missing sets; a case that cannot be simulated is counted as refused.
    """
    found = tuple(s.sample(sample) for s in load_sets(data, sets))
    cases = [case for measured in found for case in measured.cases]
    report = begin(len(cases), sum(map(num_requests, cases)))
    outcomes = run_cases(cases, jobs=jobs, overheads=overheads, report=report)
    names = {s.name for s in found}
    peers = tuple(p for p in peer_scores(data) if p.set in names)
    return Validation(sets=found, outcomes=tuple(outcomes), peers=peers)
