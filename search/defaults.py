"""The real evaluator and screen, imported only when a search uses them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dynosim.search.canonical import canonical, same_simulation
from dynosim.search.outcome import Evaluator, Screen
from dynosim.search.rules import rules_screen
from dynosim.search.space import SearchSpace
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.columns import Workload

if TYPE_CHECKING:
    from dynosim.search.plan import Estimator
    from dynosim.search.survey import Twin


def simulator() -> Evaluator:
    """Returns the evaluator that simulates."""
    from dynosim.search.evaluator import simulate_candidate

    return simulate_candidate


def full_screen(space: SearchSpace, workload: Workload, screen: Screen | None = None) -> Screen:
    """Returns the screen that asks the rules of the space, then ``screen`` (the memory model)."""
    from dynosim.search.feasibility import screen_for

    rules = rules_screen(space.budget, space.requirements, space.bounds)
    then = screen or screen_for(workload)
    return lambda deployment: rules(deployment) or then(deployment)


def twin_finder(workload: Workload) -> Twin:
    """Returns what tells which deployments the simulator cannot tell apart."""
    return same_simulation(workload)


def speller(workload: Workload) -> Callable[[Deployment], Deployment]:
    """Returns what spells the defaults of a deployment out."""
    return partial(canonical, workload=workload)


def estimator_of(space: SearchSpace, workload: Workload) -> Estimator:
    """Returns what estimates the candidates of a space under ``workload``."""
    from dynosim.search.screening import SpaceEstimator

    return SpaceEstimator(space, workload)
