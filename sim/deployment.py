"""A deployment: an engine, how many replicas of it, and how requests reach them."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.engine_args import EngineArgs, Positive
from dynosim.hardware_models.kv_tiers import KvTierOptions
from dynosim.sim.cluster.router_options import RouterOptions


@dataclass(frozen=True, kw_only=True)
class Deployment(RouterOptions, KvTierOptions, EngineArgs):
    """Engine arguments plus replicas and router: one point of a search space, hashable."""

    replicas: Positive = 1
    """Engines behind the router."""

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole deployment."""
        return self.replicas * self.gpus_per_replica
