"""Runs a workload through replicas behind a router, and returns what happened when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.frontend import IDLE, Frontend, LiveFrontend
from dynosim.sim.cluster.pool import Pool
from dynosim.sim.cluster.requests import Requests, accepted
from dynosim.sim.cluster.router_options import ROUND_ROBIN, RouterOptions
from dynosim.sim.cluster.routing import Rotation, check_options
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.timing import Timer
from dynosim.sim.results import HandOvers, Recorder, RunResult
from dynosim.sim.workload.columns import Workload

if TYPE_CHECKING:
    from dynosim.hardware_models.kv_tiers import KvTiers
    from dynosim.hardware_models.kv_transfer import KvTransfer
    from dynosim.sim.cluster.rank_group import GroupTimer
    from dynosim.sim.cluster.scaling.spec import ScalingSpec
    from dynosim.sim.cluster.scaling.states import ScalingLog
    from dynosim.sim.engine.throttle import ThrottledTimer


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
    timer is given, which then stands in for ``timer``.

    With a ``prefill`` pool, its replicas compute the prompts and these go on with the answers. With
    ``scaling`` replicas come and go, or fail.
    KV blocks may also lie in ``tiers``.
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
    prefill: PrefillSpec | None = None
    scaling: ScalingSpec | None = None
    tiers: KvTiers | None = None

    @property
    def is_scaled(self) -> bool:
        """Whether the replicas of any pool come and go."""
        prefill = self.prefill
        return self.scaling is not None or (prefill is not None and prefill.pool.is_scaled)

    @property
    def num_replicas(self) -> int:
        """The replicas that there may be."""
        return self.replicas if self.scaling is None else self.scaling.size

    def elastic(self) -> ClusterSpec:
        """Returns the same with every pool's scaling: steady, where it had none."""
        from dynosim.sim.cluster.scaling.spec import steady

        prefill = self.prefill
        if prefill is not None:
            prefill = replace(prefill, pool=prefill.pool.elastic())
        scaling = self.scaling or steady(self.replicas)
        return replace(self, scaling=scaling, prefill=prefill)

    def looks_into_steps(self, workload: Workload) -> bool:
        """Whether anything from outside may end or look at a run of an engine of any pool."""
        prefill, own = self.prefill, self.scaling
        looks = own is not None and own.looks_into_steps(workload.client)
        return looks or (prefill is not None and prefill.pool.looks_into_steps(workload))


@dataclass(frozen=True, kw_only=True)
class PrefillSpec:
    """A pool of replicas that compute prompts for others: its own replicas, and the way there.

    Prompts shorter than ``local_below_tokens`` are left to those others.
    """

    pool: ClusterSpec
    transfer: KvTransfer
    local_below_tokens: int = 0


@dataclass(frozen=True)
class _Run:
    """All that a run begins with; ``pool`` is the one that answers."""

    spec: ClusterSpec
    pool: Pool
    throttles: list[ThrottledTimer]
    requests: Requests
    fitting: IntArray
    recorder: Recorder
    seed: int

    @property
    def frontend(self) -> LiveFrontend:
        """The front-end of a closed loop."""
        return self.pool.live_frontend(self.spec, self.recorder)


def run_cluster(spec: ClusterSpec, workload: Workload, seed: int = 0) -> RunResult:
    """Returns the run of ``workload``; raises UserError where it cannot run at all."""
    if workload.client.gives_up or spec.is_scaled:
        spec = spec.elastic()
    limits = _limits(spec, workload, seed)
    pools = [spec] if spec.prefill is None else [spec, spec.prefill.pool]
    check_options(spec.routing, [pool.routing.router for pool in pools])
    requests = Requests(workload, limits)
    pool, throttles = _pool_of(spec, limits, requests, seed)
    fitting = accepted(
        workload, spec.max_model_len, spec.num_blocks, limits, spec.max_prompt_tokens
    )
    fitting = _as_they_come(workload, fitting)
    recorder = Recorder(workload)
    if workload.is_open:
        initial = spec.replicas if spec.scaling is None else spec.scaling.initial
        engines = len(pool.engines) * initial // spec.num_replicas
        recorder.send(fitting, spec.frontend, engines, spec.frontend_s)
    prefill, scaling = _go(_Run(spec, pool, throttles, requests, fitting, recorder, seed))
    pool.note_ranks(recorder.replica)
    pool.check()
    result = recorder.result(
        pool.logs, spec.num_blocks, spec.frontend, limits.drafting, hand_overs=prefill
    )
    tiers = None if pool.tiers is None else pool.tiers.result()
    return replace(result, scaling=scaling, tiers=tiers)


def _go(run: _Run) -> tuple[HandOvers | None, ScalingLog | None]:
    """Runs all requests; returns what a prefill pool did, and what became of the replicas."""
    spec, pool = run.spec, run.pool
    if spec.prefill is not None:
        return _run_pools(run, spec.prefill)
    if spec.scaling is not None:
        return None, _run_elastic(run, spec.scaling)
    if not run.recorder.workload.is_open or pool.is_live:
        from dynosim.sim.cluster.together import Together

        Together(pool, run.requests, run.recorder, run.frontend).run(run.fitting)
    elif not pool.routing.is_blind:
        from dynosim.sim.cluster.abreast import Abreast

        Abreast(pool, run.requests, run.recorder).run(run.fitting)
    else:
        # Nothing that an engine does can reach another: each runs through its own requests.
        from dynosim.sim.cluster.apart import run_apart

        router = Rotation(pool.routing.routers)
        run_apart(pool.replicas, router, run.requests, run.fitting, run.recorder)
    return None, None


def _limits(spec: ClusterSpec, workload: Workload, seed: int) -> EngineLimits:
    """Returns the limits of the engines that answer."""
    limits = spec.limits
    if limits.drafting is not None:
        limits = replace(limits, drafting=replace(limits.drafting, seed=seed))
    if spec.prefill is not None or spec.tiers is not None or spec.looks_into_steps(workload):
        # At any step boundary somebody may ask for blocks, bring KV, leave or look.
        limits = replace(limits, leaps_chunks=False)
    return limits


def _as_they_come(workload: Workload, fitting: IntArray) -> IntArray:
    """Returns requests in the order in which they reach the server: long prompts take longer."""
    if not workload.is_open or workload.network is None:
        return fitting
    reached_s = (workload.arrival_s + workload.network.up_s(workload.input_tokens))[fitting]
    return fitting[np.argsort(reached_s, kind="stable")]


def _pool_of(
    spec: ClusterSpec,
    limits: EngineLimits,
    requests: Requests,
    seed: int,
    beside: Pool | None = None,
) -> tuple[Pool, list[ThrottledTimer]]:
    """Returns the pool with every replica that there may be, and the timers of those that slow."""
    if spec.scaling is None:
        return Pool.of(spec, limits, requests, seed, beside=beside), []
    throttles = _throttles(spec, spec.scaling)
    whole = replace(spec, replicas=spec.scaling.size)
    return Pool.of(whole, limits, requests, seed, throttles, beside), throttles


def _throttles(spec: ClusterSpec, scaling: ScalingSpec) -> list[ThrottledTimer]:
    """Returns a timer for every replica where any may become slow."""
    if not scaling.may_slow_down:
        return []
    if spec.lockstep is not None:
        raise UserError(
            "ranks that step together cannot be slowed down",
            where="failures",
            hint="allowed here: crash, gpu_loss, router",
        )
    from dynosim.sim.engine.throttle import ThrottledTimer

    return [ThrottledTimer(spec.timer) for _ in range(scaling.size)]


def _run_elastic(run: _Run, scaling: ScalingSpec) -> ScalingLog:
    """Runs replicas that come, go or fail, or clients that give up."""
    from dynosim.sim.cluster.scaling.elastic import Elastic

    elastic = Elastic(
        run.pool, run.requests, run.recorder, run.frontend, scaling, run.seed, run.throttles
    )
    elastic.run(run.fitting)
    return elastic.log()


def _run_pools(run: _Run, split: PrefillSpec) -> tuple[HandOvers, ScalingLog | None]:
    """Runs both pools."""
    from dynosim.sim.cluster.disaggregated import Disaggregated, PrefillPool

    spec, own, recorder = run.spec, split.pool, run.recorder
    _check_prompts(recorder.workload, run.fitting, own)
    # Where chunks are sent one by one, or prompts may leave, they have to be computed so.
    looks = spec.looks_into_steps(recorder.workload) or own.tiers is not None
    leaps = split.transfer.overlap == "none" and not looks
    limits = replace(own.limits, leaps_chunks=leaps)
    prompts = Requests(recorder.workload, limits)
    pool, throttles = _pool_of(own, limits, prompts, run.seed, beside=run.pool)
    prefill = PrefillPool(
        pool=pool,
        requests=prompts,
        transfer=split.transfer,
        local_below_tokens=split.local_below_tokens,
    )
    both: Disaggregated
    logs: tuple[ScalingLog, ScalingLog] | tuple[None, None] = None, None
    if spec.scaling is None or own.scaling is None:
        both = Disaggregated(run.pool, run.requests, recorder, run.frontend, prefill)
        both.run(run.fitting)
    else:
        from dynosim.sim.cluster.scaling.elastic_pools import ElasticPools, PoolScaling

        scalings = (
            PoolScaling(spec=spec.scaling, throttles=run.throttles),
            PoolScaling(spec=own.scaling, throttles=throttles),
        )
        both = elastic = ElasticPools(
            run.pool, run.requests, recorder, run.frontend, prefill, *scalings, run.seed
        )
        elastic.run(run.fitting)
        logs = elastic.logs()
    pool.note_ranks(recorder.prefill_replica)
    pool.check()
    done = recorder.hand_overs(pool.logs, own.num_blocks, [*both.out, *both.into], IDLE)
    tiers = None if pool.tiers is None else pool.tiers.result()
    return replace(done, scaling=logs[1], tiers=tiers), logs[0]


def _check_prompts(workload: Workload, fitting: IntArray, pool: ClusterSpec) -> None:
    """Raises UserError where a prefill engine is too small for the longest prompt."""
    longest = int(workload.input_tokens[fitting].max(initial=1))
    blocks = -(-longest // pool.limits.block_size)
    if blocks > pool.num_blocks:
        raise UserError(
            f"a prompt of {longest:,} tokens needs {blocks:,} KV blocks; "
            f"a prefill engine has {pool.num_blocks:,}",
            where="prefill_gpu_memory_utilization",
            hint="give prefill engines more KV memory",
        )
