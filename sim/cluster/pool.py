"""The engines of one pool, as replicas behind its router."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynosim.hardware_models.registry import find_module
from dynosim.sim.cluster.balancers.base import Balancer
from dynosim.sim.cluster.frontend import LiveFrontend
from dynosim.sim.cluster.rank_group import GroupTimer, RankGroup
from dynosim.sim.cluster.rank_router import RankRouter
from dynosim.sim.cluster.replica import Replica
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.routers.base import Router
from dynosim.sim.engine.engine import Engine
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.results import Recorder

if TYPE_CHECKING:
    from dynosim.sim.cluster.cluster import ClusterSpec


def make_router(name: str, num_replicas: int, seed: int) -> Router:
    """Returns the router called ``name``; raises UserError with the nearest names."""
    module = find_module("dynosim.sim.cluster.routers", "router", name)
    router: Router = module.make(num_replicas, seed)
    return router


def make_balancer(name: str) -> Balancer:
    """Returns the balancer called ``name``; raises UserError with the nearest names."""
    module = find_module("dynosim.sim.cluster.balancers", "load balance method", name)
    balancer: Balancer = module.make()
    return balancer


@dataclass(frozen=True)
class Pool:
    """``engines``, the ``replicas`` that they make up as the router sees them, and the router.

    A replica is one engine, one of independent data-parallel ranks, or one of ``groups``.
    """

    engines: list[Engine]
    groups: list[RankGroup]
    router: Router

    @classmethod
    def of(cls, spec: ClusterSpec, limits: EngineLimits, requests: Requests, seed: int) -> Pool:
        """Returns the pool that ``spec`` describes, with ``limits`` in place of its own."""
        router = make_router(spec.router, spec.replicas, seed)
        if spec.lockstep is not None:
            groups = [_group(spec, spec.lockstep, limits, requests) for _ in range(spec.replicas)]
            return cls([engine for group in groups for engine in group.engines], groups, router)
        kind = _engine_kind(limits)
        engines = [
            kind(spec.timer, limits, spec.num_blocks, requests.blocks_per_unit)
            for _ in range(spec.replicas * spec.ranks)
        ]
        if spec.ranks > 1:
            balancers = [make_balancer(spec.balancer) for _ in range(spec.replicas)]
            router = RankRouter(router, balancers, spec.ranks)
        return cls(engines, [], router)

    @property
    def replicas(self) -> Sequence[Replica]:
        """What the router chooses from."""
        return self.groups or self.engines

    @property
    def logs(self) -> list[StepLog]:
        """The log of every engine."""
        return [engine.log for engine in self.engines]

    def live_frontend(self, spec: ClusterSpec, recorder: Recorder) -> LiveFrontend:
        """Returns the front-end of a closed loop."""

        def log_of(index: int) -> StepLog:
            number = recorder.replica[index]
            group = self.groups[number] if self.groups else None
            return (group.engine_of(index) if group else self.engines[number]).log

        return LiveFrontend(spec.frontend, spec.frontend_s, len(self.engines), log_of)

    def note_ranks(self, replica: array[int]) -> None:
        """Turns a column of replica numbers into one of engine numbers."""
        for number, group in enumerate(self.groups):
            for index, rank in group.waiting.rank_of.items():
                replica[index] = number * len(group.engines) + rank

    def check(self) -> None:
        """Raises AssertionError unless every KV block is free."""
        for engine in self.engines:
            engine.kv.check()
            assert engine.kv.used_blocks == 0, "a finished run holds KV blocks"


def _group(
    spec: ClusterSpec, timer: GroupTimer, limits: EngineLimits, requests: Requests
) -> RankGroup:
    balancer = make_balancer(spec.balancer)
    return RankGroup(timer, limits, spec.num_blocks, requests.blocks_per_unit, balancer)


def _engine_kind(limits: EngineLimits) -> type[Engine]:
    if limits.drafting is None:
        return Engine
    from dynosim.sim.engine.speculative_engine import SpeculativeEngine

    return SpeculativeEngine
