"""Kinds of metrics and of predictions, by which errors are told apart."""

from __future__ import annotations

from dynosim.hardware_models.timing.columns import ELEMENTWISE_SOURCE
from dynosim.hardware_models.timing.source import weakest
from dynosim.sim.simulate import Simulation

LIGHT, HEAVY = 8, 64
"""Requests in flight up to which load is light, and above which it is heavy."""


def quantity_of(metric: str) -> str:
    """Returns what a metric measures: ``median_ttft_ms`` and ``mean_ttft_ms`` are ``ttft``."""
    name = metric.removesuffix("_ms")
    for centre in ("mean_", "median_", "p50_"):
        name = name.removeprefix(centre)
    return name


def regime_of(in_flight: float) -> str:
    """Returns the load's class by the mean number of requests in flight per replica."""
    if in_flight <= LIGHT:
        return "light"
    return "heavy" if in_flight > HEAVY else "moderate"


def basis_of(simulation: Simulation) -> str:
    """Returns the provenance that vouches least among those of a step's kernels.

    Fused element-wise kernels are not among them: they are memory traffic for every engine.
    """
    sources = [s for s in simulation.sources if s != ELEMENTWISE_SOURCE]
    return weakest(sources)
