"""How a space will be searched: everything, or a sample; and what is known before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynosim.search.outcome import Screen
from dynosim.search.proposer import ExhaustiveProposer, Proposer, TpeProposer
from dynosim.search.refinement import refined, sampled, spread
from dynosim.search.result import Mode
from dynosim.search.screened import ScreenedProposer
from dynosim.search.screening import Judge, Screening
from dynosim.search.space import SearchSpace
from dynosim.search.survey import Survey, Twin

SCREEN_ALL = 200_000
"""Spaces up to this size are screened as a whole before the search."""

SAMPLE = 50_000
"""Combinations of a larger space that are looked at before those close to the best of them."""

Estimator = Callable[[Sequence[int]], Screening | None]
"""Returns estimates of candidates by their flat indices; None where there are none."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """``simulations`` is what the search will run at most.

    ``screened`` candidates were looked at without simulation: all of them, or an even sample of
    the space; ``refused`` counts those that cannot run, by reason, and ``examples`` has one detail
    of each. ``twins`` are the indices that need no look, since another stands for them.
    ``screening`` are the estimates of the others in mode ``screened``, and ``judge`` gives those of
    candidates that have not been looked at, where not all were.
    """

    mode: Mode
    simulations: int
    screened: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    twins: frozenset[int] = frozenset()
    screening: Screening | None = None
    judge: Judge | None = None

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
    where candidates can be estimated: all of them, or in a space larger than SCREEN_ALL a sample
    and what is close to its best (:mod:`dynosim.search.refinement`); else ``tpe``.
    """
    survey = Survey(space, screen, twin_of)
    if space.size > SCREEN_ALL:
        return _sampled_plan(space, survey, estimator)
    survey.look(range(space.size))
    if len(survey.able) <= space.n_trials:
        return _plan("exhaustive", len(survey.able), survey)
    screening = None if estimator is None else estimator(survey.able)
    mode: Mode = "tpe" if screening is None else "screened"
    return _plan(mode, space.n_trials, survey, screening)


def _sampled_plan(space: SearchSpace, survey: Survey, estimator: Estimator | None) -> Plan:
    indices = spread(space.size, SAMPLE, space.seed)
    if estimator is None:
        survey.look(indices)
        return _plan("tpe", space.n_trials, survey)

    def judge(some: Sequence[int]) -> Screening | None:
        able = survey.look(some)
        return estimator(able) if able else None

    sample = sampled(indices, judge)
    if sample is None:
        return _plan("tpe", space.n_trials, survey)
    found = replace(refined(space.grid, sample, judge), is_whole=False)
    return _plan("screened", space.n_trials, survey, found, judge)


def _plan(
    mode: Mode,
    simulations: int,
    survey: Survey,
    screening: Screening | None = None,
    judge: Judge | None = None,
) -> Plan:
    return Plan(
        mode=mode,
        simulations=simulations,
        screened=survey.screened,
        refused=dict(sorted(survey.refused.items())),
        examples=survey.examples,
        twins=frozenset(survey.twins),
        screening=screening,
        judge=judge,
    )


def make_proposer(space: SearchSpace, plan: Plan) -> Proposer:
    """Returns the proposer of a plan."""
    if plan.mode == "exhaustive":
        return ExhaustiveProposer(space.grid, plan.twins)
    if (found := plan.screening) is not None:
        return ScreenedProposer(
            space.grid,
            found.candidates,
            found.losses,
            found.margins,
            space.objectives,
            space.seed,
            judge=plan.judge,
        )
    return TpeProposer(space.grid, space.objectives, space.seed, space.normal)
