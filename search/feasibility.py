"""Candidates that need no simulation: unknown, or refused by the memory model."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.memory.plan import MemoryPlan
from dynosim.hardware_models.memory.rules import violated_rule
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.search.canonical import one_replica, routing_of
from dynosim.search.engines import planned
from dynosim.search.outcome import Outcome, Reason, Screen
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.routing import check_options
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import check_pools
from dynosim.sim.workload.columns import Workload


def screen_for(workload: Workload) -> Screen:
    """Returns the screen that asks names, then the memory model."""

    @lru_cache(maxsize=1 << 13)
    def refusal(deployment: Deployment) -> Outcome | None:
        try:
            engine, plan = planned(deployment, workload)
        except UserError as error:
            return Outcome(reason="unsupported", detail=" ".join(str(error).split()))
        return None if plan.feasible else _refusal(engine, plan)

    def screen(deployment: Deployment) -> Outcome | None:
        return _refused(deployment, refusal)

    return screen


def _refused(deployment: Deployment, refusal: Screen) -> Outcome | None:
    """Returns why one of a deployment's pools cannot run, or why they cannot work together."""
    pool = deployment.prefill_pool
    prefill_router = None if pool is None else pool.router
    if (outcome := _routing_refusal(routing_of(deployment), prefill_router)) is not None:
        return outcome
    # One replica's memory is every replica's, whatever the router.
    if (outcome := refusal(one_replica(deployment))) is not None or pool is None:
        return outcome
    if (outcome := refusal(one_replica(pool))) is not None:
        return replace(outcome, detail=f"prefill pool: {outcome.detail}")
    try:
        check_pools(deployment)
    except UserError as error:
        return Outcome(reason="unsupported", detail=" ".join(str(error).split()))
    return None


@lru_cache(maxsize=1 << 12)
def _routing_refusal(routing: tuple[Any, ...], prefill_router: str | None) -> Outcome | None:
    """Returns why routers cannot have these options."""
    options = RouterOptions(**dict(zip(RouterOptions.__dataclass_fields__, routing, strict=True)))
    try:
        check_options(options, [r for r in (options.router, prefill_router) if r is not None])
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
