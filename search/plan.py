"""How a space will be searched: everything, or a sample; and what is known before it starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from dynosim.search.outcome import Screen
from dynosim.search.proposer import ExhaustiveProposer, Proposer, TpeProposer
from dynosim.search.result import Mode
from dynosim.search.screened import ScreenedProposer
from dynosim.search.screening import Screening
from dynosim.search.space import SearchSpace
from dynosim.sim.deployment import Deployment

SCREEN_ALL = 200_000
"""Spaces up to this size are screened as a whole before the search."""

Twin = Callable[[Deployment], Hashable]
"""Returns something that deployments share which give the same simulation."""

Estimator = Callable[[Sequence[int]], Screening | None]
"""Returns estimates of candidates by their flat indices; None where there are none."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """``simulations`` is what the search will run at most.

    ``screened`` candidates were looked at without simulation: all of them, or an even sample of
    the space; ``refused`` counts those that cannot run, by reason, and ``examples`` has one detail
    of each. ``twins`` are the indices that need no look, since another stands for them.
    ``screening`` are the estimates of the others in mode ``screened``.
    """

    mode: Mode
    simulations: int
    screened: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    twins: frozenset[int] = frozenset()
    screening: Screening | None = None

    @property
    def equivalent(self) -> int:
        """How many candidates another stands for."""
        return len(self.twins)

    @property
    def feasible(self) -> int:
        """Screened candidates that are left to simulate."""
        return self.screened - sum(self.refused.values())


def plan_search(
    space: SearchSpace,
    screen: Screen,
    estimator: Estimator | None = None,
    twin_of: Twin | None = None,
) -> Plan:
    """Returns how to search.

    ``exhaustive`` where ``space.n_trials`` simulations cover all that can run; else ``screened``
    where every candidate can be looked at and estimated; else ``tpe``.
    """
    stride = -(-space.size // SCREEN_ALL)
    left, twins, refused = [], set[int](), Counter[str]()
    examples: dict[str, str] = {}
    seen: set[Hashable] = set()
    for index in range(0, space.size, stride):
        if space.normal(index) != index:
            twins.add(index)
            continue
        deployment = space.deployment(index)
        refusal = screen(deployment)
        if refusal is not None:
            refused[str(refusal.reason)] += 1
            examples.setdefault(str(refusal.reason), refusal.detail)
            continue
        twin = deployment if twin_of is None else twin_of(deployment)
        if twin in seen:
            twins.add(index)
        else:
            seen.add(twin)
            left.append(index)
    mode: Mode = "tpe"
    screening = None
    if stride == 1 and len(left) <= space.n_trials:
        mode = "exhaustive"
    elif stride == 1 and estimator is not None:
        screening = estimator(left)
        mode = "tpe" if screening is None else "screened"
    return Plan(
        mode=mode,
        simulations=min(len(left), space.n_trials) if stride == 1 else space.n_trials,
        screened=len(left) + sum(refused.values()),
        refused=dict(sorted(refused.items())),
        examples=examples,
        twins=frozenset(twins),
        screening=screening,
    )


def make_proposer(space: SearchSpace, plan: Plan) -> Proposer:
    """Returns the proposer of a plan."""
    if plan.mode == "exhaustive":
        return ExhaustiveProposer(space.grid, plan.twins)
    if (found := plan.screening) is not None:
        return ScreenedProposer(
            space.grid, found.candidates, found.losses, found.margins, space.objectives, space.seed
        )
    return TpeProposer(space.grid, space.objectives, space.seed, space.normal)
