"""From a deployment and a workload to a run: names, memory, timing, then the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

from dynosim.hardware_models.data_parallel import data_parallel_rules
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.kv_tiers import KvTiers, kv_tiers
from dynosim.hardware_models.kv_transfer import KvTransfer, kv_transfer, kv_transfer_rules
from dynosim.hardware_models.memory.plan import MemoryPlan, plan_memory
from dynosim.hardware_models.memory.rules import blamed_option
from dynosim.hardware_models.registry import find_module, own_names
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.source import OpSource
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.sim.cluster.cluster import ClusterSpec, PrefillSpec, run_cluster
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.deployment import OF_PREFILL_POOL, Deployment
from dynosim.sim.engine.drafting import Drafting
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.metrics import Metrics, per_gpu, summarize
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import RunResult
from dynosim.sim.workload.columns import Workload

if TYPE_CHECKING:
    from dynosim.hardware_models.timing.data_parallel import DataParallelTimer
    from dynosim.sim.scaling_metrics import ScaledPool

T = TypeVar("T")

_SCHEDULERS = "dynosim.sim.engine.schedulers"
_OPTIONS = {
    "sglang": ("enable_mixed_chunk", "schedule_conservativeness", "scheduler_recv_interval"),
    "trtllm": (
        *("batch_wait_timeout_iters", "batch_wait_max_tokens_ratio"),
        *("attention_dp_enable_balance", "attention_dp_timeout_iters"),
        *("attention_dp_batching_wait_iters", "moe_backend"),
    ),
}
"""Options that only one engine has."""


@dataclass(frozen=True, kw_only=True)
class PlannedEngine:
    """One engine of a pool: resolved, with its memory plan and its step times."""

    engine: ResolvedEngine
    memory: MemoryPlan
    timer: StepTimer | DataParallelTimer


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A run and what it rests on: the engines, and the prefill pool's where there is one."""

    deployment: Deployment
    decode: PlannedEngine
    prefill: PlannedEngine | None
    result: RunResult
    warnings: tuple[str, ...]

    @property
    def engine(self) -> ResolvedEngine:
        """The engine that answers come from."""
        return self.decode.engine

    @property
    def memory(self) -> MemoryPlan:
        """Its memory plan."""
        return self.decode.memory

    @property
    def timer(self) -> StepTimer | DataParallelTimer:
        """Its step times."""
        return self.decode.timer

    @property
    def sources(self) -> tuple[OpSource, ...]:
        """Where the step times of all engines come from."""
        ours = self.decode.timer.sources
        return ours if self.prefill is None else (*ours, *self.prefill.timer.sources)

    @property
    def usd_per_gpu_hour(self) -> float | None:
        """The mean price of the GPUs; None where one of them has none."""
        price = self.engine.gpu.cloud_price_usd_hour
        if self.prefill is None or price is None:
            return price
        own = self.prefill.engine.gpu.cloud_price_usd_hour
        share = self.deployment.num_prefill_gpus / self.deployment.num_gpus
        return None if own is None else share * own + (1.0 - share) * price

    def metrics(self, slos_ms: Mapping[str, float] | None = None) -> Metrics:
        """Returns :func:`dynosim.sim.metrics.summarize`, and rates and cost per GPU."""
        metrics = summarize(self.result, slos_ms)
        pools = self._scaled_pools() if self.deployment.is_scaled else []
        if not pools:
            return metrics | per_gpu(metrics, self.deployment.num_gpus, self.usd_per_gpu_hour)
        from dynosim.sim.scaling_metrics import scaling_metrics

        metrics |= scaling_metrics(*pools)
        price = self.usd_per_gpu_hour
        if price is not None and self.prefill is not None and metrics["gpu_hours"]:
            price = metrics["usd_total"] / metrics["gpu_hours"]
        return metrics | per_gpu(metrics, metrics["mean_gpus"], price)

    def _scaled_pools(self) -> list[ScaledPool]:
        """Returns what became of the replicas of every pool, the one that answers first."""
        from dynosim.sim.scaling_metrics import ScaledPool

        hand_overs = self.result.hand_overs
        logs = [self.result.scaling, None if hand_overs is None else hand_overs.scaling]
        return [
            ScaledPool(
                log=log,
                gpus_per_replica=planned.engine.args.gpus_per_replica,
                usd_per_gpu_hour=planned.engine.gpu.cloud_price_usd_hour,
            )
            for log, planned in zip(logs, (self.decode, self.prefill), strict=True)
            if log is not None and planned is not None
        ]


def simulate(
    deployment: Deployment,
    workload: Workload,
    *,
    seed: int = 0,
    leap: bool = True,
    overheads: Mapping[str, float] | None = None,
) -> Simulation:
    """Returns the simulation of ``workload`` on ``deployment``.

    ``leap=False`` runs every engine step by itself: slower, with identical results; it is the
    oracle of the tests. ``overheads`` stand in for the backend's own figures, by their names in
    :class:`~dynosim.hardware_models.backends.Backend`. Raises UserError for unknown names, and
    where the deployment cannot run (its memory plan is infeasible), with the smallest change that
    would help.
    """
    decode, warnings = plan_pool(deployment.decode_pool, workload, overheads)
    prefill = None
    if deployment.prefill_pool is not None:
        prefill, _ = located_in_prefill(
            lambda pool: plan_pool(pool, workload, overheads), deployment.prefill_pool
        )
    spec = cluster_spec(deployment, decode, prefill, leap=leap)
    if deployment.is_scaled:
        spec, notes = scaled(deployment, spec, decode, prefill, workload)
        warnings += notes
    result = run_cluster(spec, workload, seed)
    warnings += _refusals(result, _limit(decode.engine, spec))
    return Simulation(
        deployment=deployment, decode=decode, prefill=prefill, result=result, warnings=warnings
    )


def scaled(
    deployment: Deployment,
    spec: ClusterSpec,
    decode: PlannedEngine,
    prefill: PlannedEngine | None,
    workload: Workload,
) -> tuple[ClusterSpec, tuple[str, ...]]:
    """Returns the cluster with the scaling of every pool, and what its user should know of it."""
    from dynosim.sim.cluster.scaling.failures import check_failures
    from dynosim.sim.cluster.scaling.planning import check_attainment, infeasible, plan_scaling

    reason = infeasible(deployment, spec, workload)
    pool, split = deployment.prefill_pool, spec.prefill
    check_failures(deployment.failures, has_prefill=pool is not None)
    scaling, notes = plan_scaling(deployment.decode_pool, decode.engine, decode.memory, reason)
    if reason:
        notes += (f"infeasible with any number of replicas: {reason}",)
    if pool is not None and prefill is not None and split is not None:
        check_attainment(deployment, pool)
        engine, memory = prefill.engine, prefill.memory
        theirs, more = located_in_prefill(
            lambda pool: plan_scaling(pool, engine, memory, pool_name="prefill"), pool
        )
        split = replace(split, pool=replace(split.pool, scaling=theirs))
        notes = tuple(dict.fromkeys(notes + more))
    return replace(spec, scaling=scaling, prefill=split), notes


def plan_pool(
    pool: Deployment, workload: Workload, overheads: Mapping[str, float] | None = None
) -> tuple[PlannedEngine, tuple[str, ...]]:
    """Returns the engines of one pool, and warnings; UserError where they cannot run."""
    engine, warnings = resolve_for(pool, workload)
    if overheads:
        engine = replace(engine, backend=engine.backend.with_figures(overheads))
    memory = plan_memory(engine)
    if not memory.feasible:
        where = blamed_option(engine)
        raise UserError(memory.reason or "does not fit", where=where, hint=memory.hint or "")
    return PlannedEngine(engine=engine, memory=memory, timer=compile_timer(engine)), warnings


def located_in_prefill(look_up: Callable[[Deployment], T], pool: Deployment) -> T:
    """Returns what ``look_up`` says of a prefill pool, its errors located by that pool's keys."""
    try:
        return look_up(pool)
    except UserError as error:
        where, _, rest = error.where.partition(":")
        if where in OF_PREFILL_POOL:
            where = f"prefill_{where}"
        else:
            where = f"prefill pool: {where}" if where else "prefill pool"
        error = UserError(error.message, where=where + (rest and f":{rest}"), hint=error.hint)
        raise error from None


def _refusals(result: RunResult, limit: str) -> tuple[str, ...]:
    """Returns a sentence for each reason why requests were not served."""
    words = {
        Refusal.TOO_LONG: f"longer than {limit} were refused",
        Refusal.QUEUE_DEPTH: "were shed: all replicas had as many requests as they may",
        Refusal.KV_USE: "were shed: all replicas held as many KV blocks as they may",
        Refusal.ROUTER_QUEUE: "were shed: as many as may wait at a router did",
        Refusal.DEADLINE: "were shed: their first tokens would have missed the deadline",
        Refusal.FAILED: "were lost: their replica or router failed",
        Refusal.TIMED_OUT: "were lost: their clients waited too long for a first token",
        Refusal.CANCELLED: "ended early: their users went away while the answer came",
    }
    counts = {reason: int((result.refusal == reason).sum()) for reason in words}
    return tuple(f"{n} request(s) {words[reason]}" for reason, n in counts.items() if n)


def resolve_for(
    deployment: Deployment, workload: Workload
) -> tuple[ResolvedEngine, tuple[str, ...]]:
    """Returns the engine with every default filled in, and warnings.

    Without an explicit ``max_model_len`` the engine is given room for the workload's longest
    request, even beyond what the model declares (as rope scaling would): a plan for a trace should
    answer for all of it. With one, longer requests are refused, as the real engine does.
    """
    engine = resolve_engine(deployment)
    if deployment.max_model_len is not None or not len(workload):
        return engine, ()
    longest = int((workload.input_tokens + workload.output_tokens).max())
    declared = engine.args.max_model_len
    if declared is not None and longest <= declared:
        return engine, ()
    warning = (
        f"the longest request has {longest:,} tokens, {engine.model.name} declares {declared:,}: "
        f"simulated as if --max-model-len {longest} were allowed"
    )
    return replace(engine, args=replace(engine.args, max_model_len=longest)), (warning,)


def cluster_spec(
    deployment: Deployment,
    decode: PlannedEngine,
    prefill: PlannedEngine | None = None,
    *,
    leap: bool = True,
) -> ClusterSpec:
    """Returns the cluster that serves ``deployment``."""
    spec = _pool_spec(deployment.decode_pool, decode, leap=leap)
    pool = deployment.prefill_pool
    if prefill is None or pool is None:
        return spec
    engine = decode.engine
    transfer = transfer_between(deployment, prefill.engine, engine)
    split = PrefillSpec(
        pool=_pool_spec(pool, prefill, leap=leap),
        transfer=transfer,
        local_below_tokens=deployment.local_prefill_below_tokens,
    )
    caches = kv_transfer_rules(engine.backend.name).decode_prefix_caching
    caching = spec.limits.enable_prefix_caching and caches
    limits = replace(spec.limits, enable_prefix_caching=caching)
    longest = _longest_of_both(spec, split)
    # Whoever keeps no prefixes has nothing to find in tiers.
    tiers = spec.tiers if caching else None
    return replace(spec, limits=limits, prefill=split, max_prompt_tokens=longest, tiers=tiers)


def transfer_between(
    deployment: Deployment, prefill: ResolvedEngine, decode: ResolvedEngine
) -> KvTransfer:
    """Returns how a deployment's prompts get from one pool to the other."""
    return kv_transfer(
        prefill,
        decode,
        num_gpus=deployment.num_gpus,
        fabric=deployment.kv_transfer_fabric,
        bandwidth_gb_s=deployment.kv_transfer_bandwidth_gb_s,
        latency_ms=deployment.kv_transfer_latency_ms,
        overlap=deployment.kv_transfer_overlap,
    )


def check_pools(deployment: Deployment) -> None:
    """Raises UserError where a deployment's pools, each of which may run, cannot work together."""
    pool = deployment.prefill_pool
    if pool is not None:
        engines = resolve_engine(pool), resolve_engine(deployment.decode_pool)
        transfer_between(deployment, *engines)


def _longest_of_both(spec: ClusterSpec, split: PrefillSpec) -> int | None:
    """Returns the longest prompt that two pools take; UserError where one cannot do its share."""
    ours, theirs = spec.max_prompt_tokens, split.pool.max_prompt_tokens
    if ours is not None and split.local_below_tokens > ours + 1:
        raise UserError(
            f"decode engines take no prompt longer than max_num_batched_tokens {ours:,}",
            where="local_prefill_below_tokens",
            hint=f"at most {ours + 1}",
        )
    is_paused = spec.limits.scheduling_policy == "max_utilization"
    if ours is None or theirs is None:
        return theirs
    return min(ours, theirs) if is_paused else theirs


def engine_limits(engine: ResolvedEngine, *, leap: bool, lockstep: bool = False) -> EngineLimits:
    """Returns the scheduling limits of a resolved engine; UserError for options that it lacks.

    ``lockstep`` says that data-parallel ranks step together.
    """
    args = engine.args
    assert args.max_num_seqs is not None, "unresolved engine"
    assert args.max_num_batched_tokens is not None, "unresolved engine"
    scheduler = scheduler_name(engine.backend.name)
    _check_options(scheduler, args)
    factor = data_parallel_rules(engine.backend.name).conservativeness_factor if lockstep else 1.0
    return EngineLimits(
        scheduler=scheduler,
        scheduling_policy=_policy(scheduler, args.scheduling_policy),
        long_prefill_token_threshold=args.long_prefill_token_threshold,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        block_size=engine.block_size,
        enable_prefix_caching=bool(args.enable_prefix_caching),
        enable_chunked_prefill=bool(args.enable_chunked_prefill),
        enable_mixed_chunk=args.enable_mixed_chunk,
        schedule_conservativeness=args.schedule_conservativeness * factor,
        scheduler_recv_interval=args.scheduler_recv_interval,
        batch_wait_timeout_iters=args.batch_wait_timeout_iters,
        batch_wait_max_tokens_ratio=args.batch_wait_max_tokens_ratio,
        attention_dp_enable_balance=args.attention_dp_enable_balance,
        attention_dp_timeout_iters=args.attention_dp_timeout_iters,
        attention_dp_batching_wait_iters=args.attention_dp_batching_wait_iters,
        # Neither lock step nor drafts are modelled ahead of the step in progress.
        async_scheduling=engine.backend.asynchronous_scheduling
        and not lockstep
        and engine.speculation is None,
        drafting=_drafting(engine),
        max_run=1 << 40 if leap else 1,
    )


def _pool_spec(pool: Deployment, planned: PlannedEngine, *, leap: bool) -> ClusterSpec:
    engine, memory, timer = planned.engine, planned.memory, planned.timer
    args = engine.args
    assert args.max_model_len is not None, "unresolved engine"
    backend = engine.backend.name
    rules = data_parallel_rules(backend)
    lockstep = None if isinstance(timer, StepTimer) else timer
    limits = engine_limits(engine, leap=leap, lockstep=lockstep is not None)
    return ClusterSpec(
        timer=timer if isinstance(timer, StepTimer) else timer.own,
        limits=limits,
        # One of vLLM's blocks is its null block, which no request gets.
        num_blocks=memory.num_gpu_blocks - (backend == "vllm"),
        max_model_len=args.max_model_len,
        max_prompt_tokens=_longest_prompt(limits),
        replicas=pool.replicas,
        routing=router_options(pool),
        frontend_s=engine.backend.frontend_s,
        frontend=_frontend(engine),
        ranks=args.data_parallel_size,
        balancer=args.load_balance_method or rules.load_balance_method,
        lockstep=lockstep,
        tiers=_tiers(pool, engine, memory, limits, is_lockstep=lockstep is not None),
    )


def _tiers(
    deployment: Deployment,
    engine: ResolvedEngine,
    memory: MemoryPlan,
    limits: EngineLimits,
    *,
    is_lockstep: bool,
) -> KvTiers | None:
    """Returns the tiers below GPU memory; UserError where they go with something not modelled."""
    tiers = kv_tiers(deployment, engine, memory.kv_bytes_per_token * engine.block_size)
    if tiers is None:
        return None
    problems = {
        "enable_prefix_caching": not limits.enable_prefix_caching,
        "num_speculative_tokens": limits.drafting is not None,
        "data_parallel_size": is_lockstep,
        "scheduling_policy": limits.scheduling_policy == "priority",
        "backend": limits.scheduler not in ("vllm", "sglang"),
        "scheduler_recv_interval": limits.scheduler_recv_interval > 1,
    }
    for where, is_problem in problems.items():
        if is_problem:
            raise UserError(
                f"KV tiers below GPU memory are not modelled with this `{where}`",
                where=f"kv_{tiers.tiers[0].name}_gib",
                hint="they need prefix caching, vllm or sglang, requests in order of arrival and "
                "received at each step, no speculation, and ranks that do not step together",
            )
    return tiers


def router_options(deployment: Deployment) -> RouterOptions:
    """Returns the part of a deployment that is about routing."""
    names = [field.name for field in fields(RouterOptions)]
    return RouterOptions(**{name: getattr(deployment, name) for name in names})


def _longest_prompt(limits: EngineLimits) -> int | None:
    """Returns the longest prompt that TensorRT-LLM takes where it may not split one."""
    splits = limits.scheduler != "trtllm" or limits.enable_chunked_prefill
    return None if splits else limits.max_num_batched_tokens


def _limit(engine: ResolvedEngine, spec: ClusterSpec) -> str:
    """Returns in words what limits requests."""
    limit = f"max_model_len {engine.args.max_model_len:,}"
    if spec.max_prompt_tokens is None:
        return limit
    return (
        f"{limit}, or with prompts longer than max_num_batched_tokens "
        f"{spec.max_prompt_tokens:,} (enable_chunked_prefill is off),"
    )


def _frontend(engine: ResolvedEngine) -> Frontend:
    backend = engine.backend
    return Frontend(
        request_s=backend.frontend_request_s,
        input_token_s=backend.frontend_per_input_token_s,
        output_s=backend.frontend_per_output_token_s,
        detokenise_s=backend.frontend_detokenise_s,
        stream_interval=engine.args.stream_interval,
        servers=engine.args.api_server_count,
    )


def compile_timer(engine: ResolvedEngine) -> StepTimer | DataParallelTimer:
    """Returns the timer of one replica: of an engine, or of ranks that step together."""
    if engine.ranks_in_step > 1:
        from dynosim.hardware_models.timing.data_parallel import DataParallelTimer

        return DataParallelTimer.compile(engine)
    return StepTimer.compile(engine)


def scheduler_name(backend: str) -> str:
    """Returns whose scheduler forms the batches of ``backend``: vLLM's where it has none here."""
    return backend if backend in own_names(_SCHEDULERS) else "vllm"


def _drafting(engine: ResolvedEngine) -> Drafting | None:
    """Returns how the engine speculates, None where it does not."""
    speculation = engine.speculation
    if speculation is None:
        return None
    assert engine.args.max_model_len is not None, "unresolved engine"
    return Drafting(
        num_tokens=speculation.num_tokens,
        acceptance=speculation.acceptance,
        lookahead_tokens=speculation.lookahead_tokens,
        max_model_len=engine.args.max_model_len,
    )


def _check_options(scheduler: str, args: EngineArgs) -> None:
    """Raises UserError where an option is set that the scheduler does not have."""
    if args.stream_interval > 1 and args.speculative_method is not None:
        raise UserError(
            "streams of engines that speculate are written at every step here",
            where="stream_interval",
            hint="allowed: 1; or leave out speculative_method",
        )
    for owner, names in _OPTIONS.items():
        for name in names if scheduler != owner else ():
            if getattr(args, name) != getattr(EngineArgs, name):
                hint = f"it is {owner}'s"
                raise UserError(f"{args.backend} has no such option", where=name, hint=hint)
    if args.scheduler_recv_interval > 1 and args.data_parallel_size > 1:
        raise UserError(
            "sglang's ranks with data-parallel attention receive requests in every step",
            where="scheduler_recv_interval",
            hint="allowed: 1",
        )


def _policy(scheduler: str, asked: str | None) -> str:
    policies: tuple[str, ...] = find_module(_SCHEDULERS, "scheduler", scheduler).POLICIES
    policy = policies[0] if asked is None else asked.lower().replace("-", "_")
    if policy not in policies:
        raise unknown_name("scheduling policy", policy, policies, where="scheduling_policy")
    return policy
