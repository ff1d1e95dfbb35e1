"""How replicas start."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.startup.stage import StartupPlan


@dataclass(frozen=True, kw_only=True)
class StartSpec:
    """How replicas start: their plan, the scatter of its seconds, and replicas on one node."""

    plan: StartupPlan
    seconds_cv: float = 0.0
    replicas_per_node: int = 1
