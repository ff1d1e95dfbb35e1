"""Runs a workload through replicas behind a router, and returns what happened when."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.kv_tiers import KvTiers
from dynosim.hardware_models.kv_transfer import KvTransfer
from dynosim.sim.cluster.frontend import IDLE, Frontend
from dynosim.sim.cluster.pool import Pool
from dynosim.sim.cluster.rank_group import GroupTimer
from dynosim.sim.cluster.requests import Requests, accepted
from dynosim.sim.cluster.router_options import ROUND_ROBIN, RouterOptions
from dynosim.sim.cluster.routing import Rotation, check_options
from dynosim.sim.cluster.scaling.spec import ScalingSpec, steady
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.throttle import ThrottledTimer
from dynosim.sim.engine.timing import Timer
from dynosim.sim.results import HandOvers, Recorder, RunResult
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
    timer is given, which then stands in for ``timer``.

    With a ``prefill`` pool, its replicas compute the prompts and these go on with the answers. With
    ``scaling`` replicas come and go, or fail; there cannot be both.
    KV blocks may also lie in ``tiers``, where replicas stay.
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


@dataclass(frozen=True, kw_only=True)
class PrefillSpec:
    """A pool of replicas that compute prompts for others: its own replicas, and the way there.

    Prompts shorter than ``local_below_tokens`` are left to those others.
    """

    pool: ClusterSpec
    transfer: KvTransfer
    local_below_tokens: int = 0


def run_cluster(spec: ClusterSpec, workload: Workload, seed: int = 0) -> RunResult:
    """Returns the run of ``workload``; raises UserError where it cannot run at all."""
    if workload.client.gives_up and spec.scaling is None:
        spec = replace(spec, scaling=steady(spec.replicas))
    if spec.scaling is not None:
        return _run_elastic(spec, spec.scaling, workload, seed)
    limits = _seeded(spec.limits, seed)
    pools = [spec] if spec.prefill is None else [spec, spec.prefill.pool]
    check_options(spec.routing, [pool.routing.router for pool in pools])
    if spec.prefill is not None:
        # At any step boundary somebody may ask for blocks, or bring a prompt's KV.
        limits = replace(limits, leaps_chunks=False)
    if spec.tiers is not None:
        # Whose KV has come may enter at any boundary.
        limits = replace(limits, leaps_chunks=False)
    requests = Requests(workload, limits)
    pool = Pool.of(spec, limits, requests, seed)
    fitting = accepted(
        workload, spec.max_model_len, spec.num_blocks, limits, spec.max_prompt_tokens
    )
    fitting = _as_they_come(workload, fitting)
    recorder = Recorder(workload)
    if workload.is_open:
        recorder.send(fitting, spec.frontend, len(pool.engines), spec.frontend_s)
    prefill = None
    if spec.prefill is not None:
        prefill = _run_disaggregated(spec, spec.prefill, pool, requests, fitting, recorder, seed)
    elif not workload.is_open or pool.is_live:
        from dynosim.sim.cluster.together import Together

        Together(pool, requests, recorder, pool.live_frontend(spec, recorder)).run(fitting)
    elif not pool.routing.is_blind:
        from dynosim.sim.cluster.abreast import Abreast

        Abreast(pool, requests, recorder).run(fitting)
    else:
        # Nothing that an engine does can reach another: each runs through its own requests.
        from dynosim.sim.cluster.apart import run_apart

        router = Rotation(pool.routing.routers)
        run_apart(pool.replicas, router, requests, fitting, recorder)
    pool.note_ranks(recorder.replica)
    pool.check()
    result = recorder.result(
        pool.logs, spec.num_blocks, spec.frontend, limits.drafting, hand_overs=prefill
    )
    return result if pool.tiers is None else replace(result, tiers=pool.tiers.result())


def _as_they_come(workload: Workload, fitting: IntArray) -> IntArray:
    """Returns requests in the order in which they reach the server: long prompts take longer."""
    if not workload.is_open or workload.network is None:
        return fitting
    reached_s = (workload.arrival_s + workload.network.up_s(workload.input_tokens))[fitting]
    return fitting[np.argsort(reached_s, kind="stable")]


def _run_elastic(
    spec: ClusterSpec, scaling: ScalingSpec, workload: Workload, seed: int
) -> RunResult:
    """Returns the run of replicas that come, go or fail, or of clients that give up."""
    from dynosim.sim.cluster.scaling.elastic import Elastic

    if spec.prefill is not None:
        raise UserError(
            "prefill pools are neither scaled nor do they fail, and their clients are patient",
            where="prefill_replicas",
            hint="leave out prefill_replicas; or autoscaler, failures, warm_replicas and client_*",
        )
    if spec.tiers is not None:
        raise UserError(
            "replicas that come and go keep no KV cache below the GPU's memory",
            where="kv_host_gib",
            hint="leave out the kv_ tiers; or autoscaler, failures, warm_replicas and client_*",
        )
    check_options(spec.routing, [spec.routing.router])
    limits = _seeded(spec.limits, seed)
    if scaling.looks_into_steps(workload.client):
        limits = replace(limits, leaps_chunks=False)
    throttles = _throttles(spec, scaling)
    requests = Requests(workload, limits)
    pool = Pool.of(replace(spec, replicas=scaling.size), limits, requests, seed, throttles)
    fitting = accepted(
        workload, spec.max_model_len, spec.num_blocks, limits, spec.max_prompt_tokens
    )
    recorder = Recorder(workload)
    fitting = _as_they_come(workload, fitting)
    if workload.is_open:
        recorder.send(fitting, spec.frontend, scaling.initial * spec.ranks, spec.frontend_s)
    live = pool.live_frontend(spec, recorder)
    elastic = Elastic(pool, requests, recorder, live, scaling, seed, throttles)
    elastic.run(fitting)
    pool.note_ranks(recorder.replica)
    pool.check()
    result = recorder.result(pool.logs, spec.num_blocks, spec.frontend, limits.drafting)
    return replace(result, scaling=elastic.log())


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
    return [ThrottledTimer(spec.timer) for _ in range(scaling.size)]


def _run_disaggregated(
    spec: ClusterSpec,
    split: PrefillSpec,
    decode: Pool,
    requests: Requests,
    fitting: IntArray,
    recorder: Recorder,
    seed: int,
) -> HandOvers:
    """Runs both pools; returns what the prefill pool and the links did."""
    from dynosim.sim.cluster.disaggregated import Disaggregated, PrefillPool

    pool = split.pool
    _check_prompts(recorder.workload, fitting, pool)
    # Where chunks are sent one by one, they have to be computed so.
    limits = replace(pool.limits, leaps_chunks=split.transfer.overlap == "none")
    prompts = Requests(recorder.workload, limits)
    prefill = Pool.of(pool, limits, prompts, seed)
    run = Disaggregated(
        decode,
        requests,
        recorder,
        decode.live_frontend(spec, recorder),
        PrefillPool(
            pool=prefill,
            requests=prompts,
            transfer=split.transfer,
            local_below_tokens=split.local_below_tokens,
        ),
    )
    run.run(fitting)
    prefill.note_ranks(recorder.prefill_replica)
    prefill.check()
    links = [*run.out, *run.into]
    return recorder.hand_overs(prefill.logs, pool.num_blocks, links, IDLE)


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


def _seeded(limits: EngineLimits, seed: int) -> EngineLimits:
    drafting = limits.drafting
    return replace(limits, drafting=replace(drafting, seed=seed)) if drafting else limits
