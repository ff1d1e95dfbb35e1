"""From a deployment and a workload to a run: names, memory, timing, then the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster_plan import cluster_spec
from dynosim.sim.deployment import Deployment
from dynosim.sim.planned_engine import PlannedEngine, located_in_prefill, plan_pool
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import RunResult
from dynosim.sim.simulation import Simulation
from dynosim.sim.workload.columns import Workload

__all__ = ["Simulation", "simulate"]


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


def _limit(engine: ResolvedEngine, spec: ClusterSpec) -> str:
    """Returns in words what limits requests."""
    limit = f"max_model_len {engine.args.max_model_len:,}"
    if spec.max_prompt_tokens is None:
        return limit
    return (
        f"{limit}, or with prompts longer than max_num_batched_tokens "
        f"{spec.max_prompt_tokens:,} (enable_chunked_prefill is off),"
    )
