"""Candidates that need no simulation: over budget, unknown, or refused by the memory model."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.memory.plan import MemoryPlan, plan_memory
from dynosim.hardware_models.memory.rules import violated_rule
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.search.outcome import Outcome, Reason, Screen
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import check_pools, resolve_for
from dynosim.sim.workload.columns import Workload


def screen_for(workload: Workload, max_gpus: int | None) -> Screen:
    """Returns the screen of a search: GPU budget first, then names, then the memory model."""

    @lru_cache(maxsize=1 << 16)
    def refusal(deployment: Deployment) -> Outcome | None:
        try:
            engine, _ = resolve_for(deployment, workload)
            plan = plan_memory(engine)
        except UserError as error:
            return Outcome(reason="unsupported", detail=" ".join(str(error).split()))
        return None if plan.feasible else _refusal(engine, plan)

    def screen(deployment: Deployment) -> Outcome | None:
        if max_gpus is not None and deployment.num_gpus > max_gpus:
            detail = f"{deployment.num_gpus} GPUs, budget {max_gpus}"
            return Outcome(reason="over_gpu_budget", detail=detail)
        return _refused(deployment, refusal)

    return screen


def _refused(deployment: Deployment, refusal: Screen) -> Outcome | None:
    """Returns why one of a deployment's pools cannot run, or why they cannot work together."""
    # One replica's memory is every replica's, whatever the router.
    decode = replace(deployment.decode_pool, replicas=1, router=Deployment.router)
    pool = deployment.prefill_pool
    if (outcome := refusal(decode)) is not None or pool is None:
        return outcome
    prefill = replace(pool, replicas=1, router=Deployment.router)
    if (outcome := refusal(prefill)) is not None:
        return replace(outcome, detail=f"prefill pool: {outcome.detail}")
    try:
        check_pools(deployment)
    except UserError as error:
        return Outcome(reason="unsupported", detail=" ".join(str(error).split()))
    return None


def _refusal(engine: ResolvedEngine, plan: MemoryPlan) -> Outcome:
    detail = "; ".join(" ".join(part.split()) for part in (plan.reason, plan.hint) if part)
    return Outcome(reason=_reason(engine, plan), detail=detail)


def _reason(engine: ResolvedEngine, plan: MemoryPlan) -> Reason:
    rule = violated_rule(engine)
    if rule is not None:
        is_shape = rule.startswith("tensor_parallel_size")
        return "tp_does_not_divide_heads" if is_shape else "unsupported"
    has_pool = plan.kv_cache_bytes > 0
    return "kv_smaller_than_max_model_len" if has_pool and plan.max_concurrency < 1 else "oom"
