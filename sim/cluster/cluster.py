"""Runs a workload through replicas behind a router, and returns what happened when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dynosim.hardware_models.kv_tiers import KvTiers
from dynosim.hardware_models.registry import find_module
from dynosim.sim.cluster.balancers.base import Balancer
from dynosim.sim.cluster.frontend import IDLE, Frontend, LiveFrontend
from dynosim.sim.cluster.rank_group import GroupTimer, RankGroup
from dynosim.sim.cluster.replica import Replica
from dynosim.sim.cluster.requests import Requests, accepted
from dynosim.sim.cluster.router_inputs import RouterInputs
from dynosim.sim.cluster.router_options import ROUND_ROBIN, RouterOptions
from dynosim.sim.cluster.routing import Rotation, make_routing
from dynosim.sim.cluster.time_prediction import LockstepTimes, StepTimes
from dynosim.sim.engine.engine import Engine, EngineLimits
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.timing import Timer
from dynosim.sim.results import Recorder, RunResult
from dynosim.sim.tiers.cluster import TieredCluster
from dynosim.sim.workload.columns import Workload


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """Equal replicas behind one router.

    No request longer than ``max_model_len`` is accepted, and no prompt that may have to be computed
    at once and is longer than ``max_prompt_tokens``.
    ``num_blocks`` are the KV blocks that requests can hold (of vLLM's ``num_gpu_blocks`` one is its
    null block). ``frontend_s`` passes between the client's send and the engine's queue, besides
    what the ``frontend``'s processors take.

    A replica has ``ranks`` data-parallel ranks with a scheduler and ``num_blocks`` each, over which
    ``balancer`` spreads its requests; they are independent, or step together where a ``lockstep``
    timer is given, which then stands in for ``timer``. Blocks may also lie in ``tiers``.
    """

    timer: Timer
    limits: EngineLimits
    num_blocks: int
    max_model_len: int
    max_prompt_tokens: int | None = None
    replicas: int = 1
    routing: RouterOptions = ROUND_ROBIN
    frontend_s: float = 0.0
    frontend: Frontend = IDLE
    ranks: int = 1
    balancer: str = "round_robin"
    lockstep: GroupTimer | None = None
    tiers: KvTiers | None = None


def make_balancer(name: str) -> Balancer:
    """Returns the balancer called ``name``; raises UserError with the nearest names."""
    module = find_module("dynosim.sim.cluster.balancers", "load balance method", name)
    balancer: Balancer = module.make()
    return balancer


def _step_times(spec: ClusterSpec) -> StepTimes:
    """Returns the step times of what a router routes to: a replica, or a rank by itself."""
    limits = spec.limits
    return StepTimes(
        timer=LockstepTimes(spec.lockstep) if spec.lockstep else spec.timer,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_num_seqs=limits.max_num_seqs,
        block_size=limits.block_size,
        ranks=spec.lockstep.ranks if spec.lockstep else 1,
    )


def _group(spec: ClusterSpec, timer: GroupTimer, requests: Requests) -> RankGroup:
    balancer = make_balancer(spec.balancer)
    return RankGroup(timer, spec.limits, spec.num_blocks, requests.blocks_per_unit, balancer)


def run_cluster(spec: ClusterSpec, workload: Workload, seed: int = 0) -> RunResult:
    """Returns the run of ``workload``; raises UserError where it cannot run at all."""
    limits = _seeded(spec.limits, seed)
    requests = Requests(workload, limits)
    inputs = RouterInputs(requests, _step_times(spec), spec.routing.router_event_lag_s)
    apart = spec.ranks > 1 and spec.lockstep is None
    balancers = [make_balancer(spec.balancer) for _ in range(spec.replicas)] if apart else []
    routing = make_routing(spec.routing, inputs, spec.replicas, seed, balancers, spec.ranks)
    if inputs.index is not None or spec.routing.router_max_kv_use is not None:
        # What a router sees of blocks must be that of the step in progress.
        limits = replace(limits, leaps_chunks=False)
    groups: list[RankGroup] = []
    tiered: TieredCluster | None = None
    if spec.tiers is not None:
        # Whose KV has come may enter at any boundary.
        limits = replace(limits, leaps_chunks=False)
        per_unit = requests.blocks_per_unit
        tiered = TieredCluster(spec.tiers, limits.block_size * per_unit, per_unit)
    if spec.lockstep is not None:
        groups = [_group(spec, spec.lockstep, requests) for _ in range(spec.replicas)]
        engines = [engine for group in groups for engine in group.engines]
    elif tiered is not None:
        count = spec.replicas * spec.ranks
        engines = [tiered.engine(spec.timer, limits, spec.num_blocks) for _ in range(count)]
    else:
        kind = _engine_kind(limits)
        engines = [
            kind(spec.timer, limits, spec.num_blocks, requests.blocks_per_unit)
            for _ in range(spec.replicas * spec.ranks)
        ]
    if inputs.index is not None:
        inputs.index.follow([engine.kv for engine in engines], spec.replicas)
        if tiered is not None:
            tiered.follow()
    replicas: Sequence[Replica] = groups or engines
    fitting = accepted(
        workload, spec.max_model_len, spec.num_blocks, limits, spec.max_prompt_tokens
    )
    recorder = Recorder(workload)
    if workload.max_concurrency is None:
        recorder.send(fitting, spec.frontend, len(engines), spec.frontend_s)
    own = [group.engines for group in groups] or [[engine] for engine in engines]
    # What replicas share, they must come to in order of time.
    is_shared = spec.tiers is not None and spec.tiers.is_shared
    if workload.max_concurrency is not None or routing.is_live or is_shared:
        from dynosim.sim.cluster.together import Together

        def log_of(index: int) -> StepLog:
            number = recorder.replica[index]
            group = groups[number] if groups else None
            return (group.engine_of(index) if group else engines[number]).log

        live = LiveFrontend(spec.frontend, spec.frontend_s, len(engines), log_of)
        Together(replicas, own, routing, requests, recorder, live).run(fitting)
    elif not routing.is_blind:
        from dynosim.sim.cluster.abreast import Abreast

        Abreast(replicas, own, routing, requests, recorder).run(fitting)
    else:
        # Nothing that an engine does can reach another: each runs through its own requests.
        from dynosim.sim.cluster.apart import run_apart

        run_apart(replicas, Rotation(routing.routers), requests, fitting, recorder)
    for number, group in enumerate(groups):
        for index, rank in group.waiting.rank_of.items():
            recorder.replica[index] = number * len(group.engines) + rank
    for engine in engines:
        engine.kv.check()
        assert engine.kv.used_blocks == 0, "a finished run holds KV blocks"
    logs = [engine.log for engine in engines]
    result = recorder.result(logs, spec.num_blocks, spec.frontend, limits.drafting)
    return replace(result, tiers=tiered.result()) if tiered is not None else result


def _seeded(limits: EngineLimits, seed: int) -> EngineLimits:
    drafting = limits.drafting
    return replace(limits, drafting=replace(drafting, seed=seed)) if drafting else limits


def _engine_kind(limits: EngineLimits) -> type[Engine]:
    if limits.drafting is None:
        return Engine
    from dynosim.sim.engine.speculative_engine import SpeculativeEngine

    return SpeculativeEngine
