"""From a deployment and a workload to a run: names, memory, timing, then the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from dynosim.hardware_models.data_parallel import data_parallel_rules
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.kv_tiers import KvTiers, kv_tiers
from dynosim.hardware_models.memory.plan import MemoryPlan, plan_memory
from dynosim.hardware_models.registry import find_module, own_names
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.data_parallel import DataParallelTimer
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.deployment import Deployment
from dynosim.sim.engine.drafting import Drafting
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.metrics import Metrics, per_gpu, summarize
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import RunResult
from dynosim.sim.workload.columns import Workload

_SCHEDULERS = "dynosim.sim.engine.schedulers"
_SGLANG_OPTIONS = ("enable_mixed_chunk", "schedule_conservativeness")


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A run and what it rests on: the engine as resolved, its memory plan, its timing sources."""

    deployment: Deployment
    engine: ResolvedEngine
    memory: MemoryPlan
    timer: StepTimer | DataParallelTimer
    result: RunResult
    warnings: tuple[str, ...]

    def metrics(self, slos_ms: Mapping[str, float] | None = None) -> Metrics:
        """Returns :func:`dynosim.sim.metrics.summarize`, and rates and cost per GPU."""
        metrics = summarize(self.result, slos_ms)
        price = self.engine.gpu.cloud_price_usd_hour
        return metrics | per_gpu(metrics, self.deployment.num_gpus, price)


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
    engine, warnings = resolve_for(deployment, workload)
    if overheads:
        engine = replace(engine, backend=engine.backend.with_figures(overheads))
    memory = plan_memory(engine)
    if not memory.feasible:
        raise UserError(memory.reason or "does not fit", where="memory", hint=memory.hint or "")
    timer = compile_timer(engine)
    spec = cluster_spec(deployment, engine, memory, timer, leap=leap)
    result = run_cluster(spec, workload, seed)
    warnings += _refusals(result, _limit(engine, spec))
    return Simulation(
        deployment=deployment,
        engine=engine,
        memory=memory,
        timer=timer,
        result=result,
        warnings=warnings,
    )


def _refusals(result: RunResult, limit: str) -> tuple[str, ...]:
    """Returns a sentence for each reason why requests were not served."""
    words = {
        Refusal.TOO_LONG: f"longer than {limit} were refused",
        Refusal.QUEUE_DEPTH: "were shed: all replicas had as many requests as they may",
        Refusal.KV_USE: "were shed: all replicas held as many KV blocks as they may",
        Refusal.ROUTER_QUEUE: "were shed: as many as may wait at a router did",
        Refusal.DEADLINE: "were shed: their first tokens would have missed the deadline",
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
    engine: ResolvedEngine,
    memory: MemoryPlan,
    timer: StepTimer | DataParallelTimer,
    *,
    leap: bool = True,
) -> ClusterSpec:
    """Returns the cluster that serves ``deployment``."""
    args = engine.args
    assert args.max_num_seqs is not None, "unresolved engine"
    assert args.max_num_batched_tokens is not None, "unresolved engine"
    assert args.max_model_len is not None, "unresolved engine"
    backend = engine.backend.name
    scheduler = scheduler_name(backend)
    _check_options(scheduler, args)
    rules = data_parallel_rules(backend)
    lockstep = timer if isinstance(timer, DataParallelTimer) else None
    conservativeness = args.schedule_conservativeness
    limits = EngineLimits(
        scheduler=scheduler,
        scheduling_policy=_policy(scheduler, args.scheduling_policy),
        long_prefill_token_threshold=args.long_prefill_token_threshold,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        block_size=engine.block_size,
        enable_prefix_caching=bool(args.enable_prefix_caching),
        enable_chunked_prefill=bool(args.enable_chunked_prefill),
        enable_mixed_chunk=args.enable_mixed_chunk,
        schedule_conservativeness=conservativeness
        * (rules.conservativeness_factor if lockstep else 1.0),
        # Neither lock step nor drafts are modelled ahead of the step in progress.
        async_scheduling=engine.backend.asynchronous_scheduling
        and not lockstep
        and engine.speculation is None,
        drafting=_drafting(engine),
        max_run=1 << 40 if leap else 1,
    )
    return ClusterSpec(
        timer=timer.own if isinstance(timer, DataParallelTimer) else timer,
        limits=limits,
        # One of vLLM's blocks is its null block, which no request gets.
        num_blocks=memory.num_gpu_blocks - (backend == "vllm"),
        max_model_len=args.max_model_len,
        max_prompt_tokens=_longest_prompt(limits),
        replicas=deployment.replicas,
        routing=router_options(deployment),
        frontend_s=engine.backend.frontend_s,
        frontend=_frontend(engine),
        ranks=args.data_parallel_size,
        balancer=args.load_balance_method or rules.load_balance_method,
        lockstep=lockstep,
        tiers=_tiers(deployment, engine, memory, limits, is_lockstep=lockstep is not None),
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
    }
    for where, is_problem in problems.items():
        if is_problem:
            raise UserError(
                f"KV tiers below GPU memory are not modelled with this `{where}`",
                where=f"kv_{tiers.tiers[0].name}_gib",
                hint="they need prefix caching, vllm or sglang, requests in order of arrival, no "
                "speculation, and ranks that do not step together",
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
        servers=engine.args.api_server_count,
    )


def compile_timer(engine: ResolvedEngine) -> StepTimer | DataParallelTimer:
    """Returns the timer of one replica: of an engine, or of ranks that step together."""
    if engine.ranks_in_step > 1:
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
    for name in _SGLANG_OPTIONS if scheduler != "sglang" else ():
        if getattr(args, name) != getattr(EngineArgs, name):
            raise UserError(f"{args.backend} has no such option", where=name, hint="it is sglang's")


def _policy(scheduler: str, asked: str | None) -> str:
    policies: tuple[str, ...] = find_module(_SCHEDULERS, "scheduler", scheduler).POLICIES
    policy = policies[0] if asked is None else asked.lower().replace("-", "_")
    if policy not in policies:
        raise unknown_name("scheduling policy", policy, policies, where="scheduling_policy")
    return policy
