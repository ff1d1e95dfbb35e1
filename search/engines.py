"""Engines of candidates, resolved and planned once for screen, canonical form and estimate."""

from __future__ import annotations

from functools import lru_cache

from dynosim.hardware_models.memory.plan import MemoryPlan, plan_memory
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import resolve_for
from dynosim.sim.workload.columns import Workload

MOST_KEPT = 1 << 13
"""Engines remembered: those of the candidates that are looked at together, in some 40 MiB."""


@lru_cache(maxsize=MOST_KEPT)
def planned(alone: Deployment, workload: Workload) -> tuple[ResolvedEngine, MemoryPlan]:
    """Returns the engine of one replica and what its memory holds; UserError for unknown names."""
    engine = resolved(alone, workload)
    return engine, plan_memory(engine)


@lru_cache(maxsize=MOST_KEPT)
def resolved(alone: Deployment, workload: Workload) -> ResolvedEngine:
    """Returns the engine of one replica; UserError for unknown names."""
    return resolve_for(alone, workload)[0]
