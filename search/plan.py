"""How a space will be searched: everything, or a sample; and what is known before it starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from dynosim.search.outcome import Screen
from dynosim.search.proposer import ExhaustiveProposer, Proposer, TpeProposer
from dynosim.search.result import Mode
from dynosim.search.space import SearchSpace

SCREEN_ALL = 20_000
"""Spaces up to this size are screened as a whole before the search."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """``simulations`` is what the search will run at most.

    ``screened`` candidates were looked at without simulation: all of them, or an even sample of
    the space; ``refused`` counts those that cannot run, by reason.
    """

    mode: Mode
    simulations: int
    screened: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def feasible(self) -> int:
        """Screened candidates that are left to simulate."""
        return self.screened - sum(self.refused.values())


def plan_search(space: SearchSpace, screen: Screen) -> Plan:
    """Returns ``exhaustive`` where ``space.n_trials`` simulations cover all that can run."""
    stride = -(-space.size // SCREEN_ALL)
    indices = range(0, space.size, stride)
    refusals = (screen(space.deployment(i)) for i in indices)
    refused = Counter(str(r.reason) for r in refusals if r is not None)
    left = len(indices) - sum(refused.values())
    is_exhaustive = stride == 1 and left <= space.n_trials
    return Plan(
        mode="exhaustive" if is_exhaustive else "tpe",
        simulations=min(left, space.n_trials) if stride == 1 else space.n_trials,
        screened=len(indices),
        refused=dict(sorted(refused.items())),
    )


def make_proposer(space: SearchSpace, mode: Mode) -> Proposer:
    """Returns the proposer of a mode."""
    if mode == "exhaustive":
        return ExhaustiveProposer(space.grid)
    return TpeProposer(space.grid, space.objectives, space.seed)
