"""From planned engines to the cluster that serves a deployment."""

from __future__ import annotations

from dataclasses import fields, replace

from dynosim.hardware_models.data_parallel import data_parallel_rules
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.kv_tiers import KvTiers, kv_tiers
from dynosim.hardware_models.kv_transfer import KvTransfer, kv_transfer, kv_transfer_rules
from dynosim.hardware_models.memory.plan import MemoryPlan
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.sim.cluster.cluster import ClusterSpec, PrefillSpec
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.deployment import Deployment
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.engine_limits import engine_limits
from dynosim.sim.planned_engine import PlannedEngine


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
