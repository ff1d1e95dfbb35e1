"""From a deployment to how its replicas come, go and fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.memory.plan import MemoryPlan
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.startup.plan import plan_startup
from dynosim.hardware_models.startup.stage import StartupPlan
from dynosim.sim.cluster.scaling.failures import PoolName
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.spec import ScalingSpec, scaling_spec
from dynosim.sim.cluster.scaling.start_spec import StartSpec
from dynosim.sim.workload.columns import Workload

if TYPE_CHECKING:
    from dynosim.sim.cluster.cluster import ClusterSpec
    from dynosim.sim.deployment import Deployment


def plan_scaling(
    pool: Deployment,
    engine: ResolvedEngine,
    memory: MemoryPlan,
    reason: str = "",
    pool_name: PoolName = "",
) -> tuple[ScalingSpec, tuple[str, ...]]:
    """Returns the scaling of a deployment's pool, and what its user should know of it.

    ``reason`` is why no number of replicas can do. Raises UserError for options that contradict
    each other.
    """
    plan = plan_startup(engine, memory, pool)
    start = start_spec(pool, engine, plan)
    return scaling_spec(pool, start, pool.replicas, reason, pool_name), plan.notes


def check_attainment(decode: ScalingOptions, prefill: ScalingOptions) -> None:
    """Raises UserError where a pool of two is to keep an SLO of the other's, or none."""
    for options, prefix, limit in ((decode, "", "tpot"), (prefill, "prefill_", "ttft")):
        is_asked = options.autoscaler is not None and options.autoscaler_metric == "slo_attainment"
        if is_asked and getattr(options, f"autoscaler_slo_{limit}_ms") is None:
            raise UserError(
                f"this pool's part of an answer is its {limit.upper()}, which has no limit",
                where=f"autoscaler_slo_{limit}_ms",
                hint=f"give it, or another {prefix}autoscaler_metric",
            )


def start_spec(deployment: Deployment, engine: ResolvedEngine, plan: StartupPlan) -> StartSpec:
    """Returns how a deployment's replicas start, each of which takes its share of a node."""
    per_node = max(engine.gpu.gpus_per_node // deployment.gpus_per_replica, 1)
    return StartSpec(plan=plan, seconds_cv=deployment.startup_cv, replicas_per_node=per_node)


def infeasible(options: ScalingOptions, cluster: ClusterSpec, workload: Workload) -> str:
    """Returns why no number of replicas keeps the SLO; empty where some number may.

    A request alone on a replica takes the time of its prompt; where that is too long for more of
    the requests than the SLO lets pass, more replicas do not help. Prompts count as not cached.
    """
    slo_ms = options.autoscaler_slo_ttft_ms
    if slo_ms is None or not len(workload):
        return ""
    lengths = np.unique(workload.input_tokens)
    low, high = 0, len(lengths)
    while low < high:
        middle = (low + high) // 2
        if ttft_alone_s(cluster, int(lengths[middle])) * 1e3 <= slo_ms:
            low = middle + 1
        else:
            high = middle
    kept = float((workload.input_tokens < lengths[low]).mean()) if low < len(lengths) else 1.0
    if kept >= options.autoscaler_slo_share:
        return ""
    typical = int(np.quantile(workload.input_tokens, options.autoscaler_slo_share))
    alone_ms = ttft_alone_s(cluster, typical) * 1e3
    return (
        f"a prompt of {typical:,} tokens takes {alone_ms:,.0f} ms alone on a replica, the SLO is "
        f"{slo_ms:,g} ms; at most {kept:.0%} of the requests can keep it, "
        f"{options.autoscaler_slo_share:.0%} should"
    )


def ttft_alone_s(cluster: ClusterSpec, prompt_tokens: int) -> float:
    """Returns the seconds to the first token of a request that has its replicas to itself.

    With a prefill pool, of which no less is known than this: KV that leaves while the prompt is
    computed may all have come by its end.
    """
    frontend, prefill = cluster.frontend, cluster.prefill
    seconds = cluster.frontend_s
    seconds += (frontend.request_s + frontend.input_token_s * prompt_tokens) / frontend.servers
    if prefill is None or prompt_tokens < prefill.local_below_tokens:
        return seconds + prompt_s(cluster, prompt_tokens)
    transfer = prefill.transfer
    seconds += prompt_s(prefill.pool, prompt_tokens) + transfer.latency_s
    if transfer.overlap == "none":
        port_bytes_s = min(transfer.egress_bytes_s, transfer.ingress_bytes_s)
        seconds += (transfer.size.of(prompt_tokens) + transfer.size.state) / port_bytes_s
    return seconds


def prompt_s(cluster: ClusterSpec, prompt_tokens: int) -> float:
    """Returns the seconds that a replica computes a prompt for, with nothing beside it."""
    timer, limits = cluster.timer, cluster.limits
    seconds = 0.0
    computed = 0
    while computed < prompt_tokens:
        chunk = min(limits.max_num_batched_tokens, prompt_tokens - computed)
        attention_s = timer.prefill_attention_s(chunk, computed)
        is_last = computed + chunk == prompt_tokens
        seconds += timer.step_s(chunk, int(is_last), attention_s, 0, 0)
        computed += chunk
    return seconds
