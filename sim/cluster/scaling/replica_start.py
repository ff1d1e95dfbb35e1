"""How a deployment's replicas start, alone and together: from its options to seconds."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.memory.rules import blamed_option
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.startup.plan import plan_startup
from dynosim.hardware_models.startup.stage import StartupPlan
from dynosim.sim.cluster.scaling.at_once import start_at_once
from dynosim.sim.cluster.scaling.planning import start_spec
from dynosim.sim.cluster.scaling.start_spec import StartSpec
from dynosim.sim.deployment import Deployment


@dataclass(frozen=True, kw_only=True)
class ReplicaStart:
    """The engine of a replica, the stages of its start, and what concurrent starts share."""

    engine: ResolvedEngine
    plan: StartupPlan
    spec: StartSpec

    def at_once_s(self, count: int, seed: int = 0) -> list[float]:
        """Returns the seconds after which each of ``count`` replicas serves that start together."""
        return start_at_once(self.spec, count, seed)


def replica_start(deployment: Deployment) -> ReplicaStart:
    """Returns how replicas of ``deployment`` start; UserError where one does not fit."""
    engine = resolve_engine(deployment)
    memory = plan_memory(engine)
    if not memory.feasible:
        where = blamed_option(engine)
        raise UserError(memory.reason or "does not fit", where=where, hint=memory.hint or "")
    plan = plan_startup(engine, memory, deployment)
    return ReplicaStart(engine=engine, plan=plan, spec=start_spec(deployment, engine, plan))
