"""The engines of one pool, as replicas behind its router."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dynosim.hardware_models.registry import find_module
from dynosim.sim.cluster.balancers.base import Balancer
from dynosim.sim.cluster.frontend import LiveFrontend
from dynosim.sim.cluster.replica import Replica
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.router_inputs import RouterInputs
from dynosim.sim.cluster.routing import Routing, make_routing
from dynosim.sim.cluster.time_prediction import StepTimes
from dynosim.sim.engine.engine import Engine
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.timing import Timer
from dynosim.sim.results import Recorder

if TYPE_CHECKING:
    from dynosim.sim.cluster.cluster import ClusterSpec
    from dynosim.sim.cluster.rank_group import GroupTimer, RankGroup
    from dynosim.sim.tiers.cluster import TieredCluster


def make_balancer(name: str) -> Balancer:
    """Returns the balancer called ``name``; raises UserError with the nearest names."""
    module = find_module("dynosim.sim.cluster.balancers", "load balance method", name)
    balancer: Balancer = module.make()
    return balancer


@dataclass(frozen=True)
class Pool:
    """``engines``, the ``replicas`` that they make up as routers see them, and the routers.

    Their KV may also lie in ``tiers``. A replica is one engine, one of independent data-parallel
    ranks, or one of ``groups``.
    """

    engines: list[Engine]
    groups: list[RankGroup]
    routing: Routing
    tiers: TieredCluster | None = None

    @classmethod
    def of(
        cls,
        spec: ClusterSpec,
        limits: EngineLimits,
        requests: Requests,
        seed: int,
        timers: Sequence[Timer] = (),
        beside: Pool | None = None,
    ) -> Pool:
        """Returns the pool that ``spec`` describes, with ``limits`` in place of its own.

        ``timers``, if any, are those of its replicas, in place of its own. With the pool
        ``beside`` it shares storage for KV.
        """
        routing = _routing(spec, requests, seed)
        if routing.sees_blocks:
            # What routers see of blocks must be that of the step in progress.
            limits = replace(limits, leaps_chunks=False)
        groups: list[RankGroup] = []
        tiers: TieredCluster | None = None
        if spec.lockstep is not None:
            groups = [_group(spec, spec.lockstep, limits, requests) for _ in range(spec.replicas)]
            engines = [engine for group in groups for engine in group.engines]
        elif spec.tiers is not None:
            from dynosim.sim.tiers.cluster import TieredCluster

            per_unit = requests.blocks_per_unit
            other = None if beside is None else beside.tiers
            tiers = TieredCluster(spec.tiers, limits.block_size * per_unit, per_unit, other)
            engines = [
                tiers.engine(timer, limits, spec.num_blocks)
                for timer in timers or [spec.timer] * spec.replicas
                for _ in range(spec.ranks)
            ]
        else:
            kind = _engine_kind(limits)
            engines = [
                kind(timer, limits, spec.num_blocks, requests.blocks_per_unit)
                for timer in timers or [spec.timer] * spec.replicas
                for _ in range(spec.ranks)
            ]
        if routing.inputs.index is not None:
            routing.inputs.index.follow([engine.kv for engine in engines], spec.replicas)
            if tiers is not None:
                tiers.follow()
                routing.inputs.index.look_below(tiers.stacks)
        return cls(engines, groups, routing, tiers)

    @property
    def is_live(self) -> bool:
        """Whether replicas must run on one clock: for the routers, or for what they share."""
        return self.routing.is_live or (self.tiers is not None and self.tiers.is_shared)

    @property
    def replicas(self) -> Sequence[Replica]:
        """What the router chooses from."""
        return self.groups or self.engines

    @property
    def engines_by_replica(self) -> list[list[Engine]]:
        """The engines of each replica."""
        if self.groups:
            return [group.engines for group in self.groups]
        return [[engine] for engine in self.engines]

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
        # Of a request that was tried again elsewhere, the last place counts.
        group_of = list(replica)
        for number, group in enumerate(self.groups):
            for index, rank in group.waiting.rank_of.items():
                if group_of[index] == number:
                    replica[index] = number * len(group.engines) + rank

    def check(self) -> None:
        """Raises AssertionError unless every KV block is free."""
        for engine in self.engines:
            engine.kv.check()
            assert engine.kv.used_blocks == 0, "a finished run holds KV blocks"


def _routing(spec: ClusterSpec, requests: Requests, seed: int) -> Routing:
    limits = spec.limits
    # Of what is routed to: a replica, or a rank by itself.
    steps = StepTimes(
        timer=_lockstep_times(spec.lockstep) if spec.lockstep else spec.timer,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_num_seqs=limits.max_num_seqs,
        block_size=limits.block_size,
        ranks=spec.lockstep.ranks if spec.lockstep else 1,
    )
    inputs = RouterInputs(requests, steps, spec.routing.router_event_lag_s)
    is_apart = spec.ranks > 1 and spec.lockstep is None
    balancers = [make_balancer(spec.balancer) for _ in range(spec.replicas)] if is_apart else []
    return make_routing(spec.routing, inputs, spec.replicas, seed, balancers, spec.ranks)


def _lockstep_times(timer: GroupTimer) -> Timer:
    from dynosim.sim.cluster.lockstep_times import LockstepTimes

    return LockstepTimes(timer)


def _group(
    spec: ClusterSpec, timer: GroupTimer, limits: EngineLimits, requests: Requests
) -> RankGroup:
    from dynosim.sim.cluster.rank_group import RankGroup

    balancer = make_balancer(spec.balancer)
    return RankGroup(timer, limits, spec.num_blocks, requests.blocks_per_unit, balancer)


def _engine_kind(limits: EngineLimits) -> type[Engine]:
    if limits.drafting is None:
        return Engine
    from dynosim.sim.engine.speculative_engine import SpeculativeEngine

    return SpeculativeEngine
