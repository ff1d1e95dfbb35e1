"""The real evaluator and screen, imported only when a search uses them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dynosim.search.outcome import Evaluator, Screen
from dynosim.search.space import SearchSpace
from dynosim.sim.workload.columns import Workload

if TYPE_CHECKING:
    from dynosim.search.plan import Estimator


def simulator() -> Evaluator:
    """Returns the evaluator that simulates."""
    from dynosim.search.evaluator import simulate_candidate

    return simulate_candidate


def memory_screen(workload: Workload, max_gpus: int | None) -> Screen:
    """Returns the screen that asks the GPU budget and the memory model."""
    from dynosim.search.feasibility import screen_for

    return screen_for(workload, max_gpus)


def estimator_of(space: SearchSpace, workload: Workload) -> Estimator:
    """Returns what estimates the candidates of a space under ``workload``."""
    from dynosim.search.screening import screen_space

    return partial(screen_space, space, workload)
