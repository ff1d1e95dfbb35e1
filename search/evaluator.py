"""Simulates one candidate; imported by workers, so it needs numpy and SimPy only."""

from __future__ import annotations

import numpy as np

from dynosim.accuracy.kinds import basis_of
from dynosim.hardware_models.llm.quality import quality_of
from dynosim.hardware_models.power import mean_watts
from dynosim.search.outcome import Outcome, Task
from dynosim.search.stability import instability
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics
from dynosim.sim.simulate import Simulation, simulate


def simulate_candidate(deployment: Deployment, task: Task) -> Outcome:
    """Returns the metrics of :func:`dynosim.sim.simulate.simulate`, and whether the queue grew."""
    simulation = simulate(deployment, task.workload, seed=task.seed)
    metrics = simulation.metrics(task.goodput_ms or None)
    metrics |= {"quality": quality_of(simulation.engine.model)}
    metrics |= energy(simulation, metrics)
    refused = int(metrics["failed"])
    is_refusing = refused > task.max_refused
    return Outcome(
        metrics=metrics,
        reason="refuses_requests" if is_refusing else None,
        detail=simulation.warnings[-1] if is_refusing else "",
        instability=_instability(simulation),
        timing=basis_of(simulation),
        warnings=simulation.warnings,
    )


def energy(simulation: Simulation, metrics: Metrics) -> Metrics:
    """Returns the boards' mean draw, and joules per output token; NaN where nothing came out."""
    prefill, prefill_gpus = simulation.prefill, simulation.deployment.num_prefill_gpus
    own_gpus = float(simulation.deployment.num_gpus - prefill_gpus)
    watts = mean_watts(simulation.engine.gpu, own_gpus, metrics["busy_share"])
    if prefill is not None:
        busy_share = metrics["prefill_busy_share"]
        watts += mean_watts(prefill.engine.gpu, float(prefill_gpus), busy_share)
    output_tok_s = metrics["output_throughput"]
    joules = watts / output_tok_s if output_tok_s > 0 else float("nan")
    return {"mean_watts": watts, "joules_per_output_token": joules}


def _instability(simulation: Simulation) -> float:
    result = simulation.result
    if result.workload.max_concurrency is not None:
        return -1.0  # A closed loop sends no faster than it is served.
    done = np.flatnonzero(result.completed)
    return instability(result.sent_s[done], result.scheduled_s[done], result.finish_s[done])
