"""The real evaluator and screen, imported only when a search uses them."""

from __future__ import annotations

from dynosim.search.outcome import Evaluator, Screen
from dynosim.sim.workload.columns import Workload


def simulator() -> Evaluator:
    """Returns the evaluator that simulates."""
    from dynosim.search.evaluator import simulate_candidate

    return simulate_candidate


def memory_screen(workload: Workload, max_gpus: int | None) -> Screen:
    """Returns the screen that asks the GPU budget and the memory model."""
    from dynosim.search.feasibility import screen_for

    return screen_for(workload, max_gpus)
