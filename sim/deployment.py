"""A deployment: an engine, how many replicas of it, and how requests reach them."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.engine_args import EngineArgs, Positive
from dynosim.hardware_models.startup.options import StartupOptions
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.scaling.options import ScalingOptions


@dataclass(frozen=True, kw_only=True)
class Deployment(ScalingOptions, StartupOptions, RouterOptions, EngineArgs):
    """Engine arguments plus replicas and router: one point of a search space, hashable."""

    replicas: Positive = 1
    """Engines behind the router; with an autoscaler, at first."""

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole deployment, at most."""
        replicas = self.max_replicas if self.autoscaler is not None else None
        return ((replicas or self.replicas) + self.warm_replicas) * self.gpus_per_replica
