"""Simulates one candidate; imported by workers, so it needs numpy and SimPy only."""

from __future__ import annotations

import numpy as np

from dynosim.search.outcome import Outcome, Task
from dynosim.search.stability import instability
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import Simulation, simulate


def simulate_candidate(deployment: Deployment, task: Task) -> Outcome:
    """Returns the metrics of :func:`dynosim.sim.simulate.simulate`, and whether the queue grew."""
    simulation = simulate(deployment, task.workload, seed=task.seed)
    metrics = simulation.metrics(task.goodput_ms or None)
    refused = int(metrics["failed"])
    if refused > task.max_refused:
        return Outcome(
            metrics=metrics,
            reason="refuses_requests",
            detail=f"{refused} requests are longer than max_model_len {deployment.max_model_len}",
        )
    return Outcome(metrics=metrics, instability=_instability(simulation))


def _instability(simulation: Simulation) -> float:
    result = simulation.result
    if result.workload.max_concurrency is not None:
        return -1.0  # A closed loop sends no faster than it is served.
    done = np.flatnonzero(result.completed)
    return instability(result.sent_s[done], result.scheduled_s[done], result.finish_s[done])
