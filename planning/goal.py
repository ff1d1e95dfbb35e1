"""What a deployment is worth, in one number: users within limits, or tokens per GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.planning.capacity import boundary_of, load_cap
from dynosim.planning.load import Load, check_fixed
from dynosim.planning.observation import Observation, observe
from dynosim.search.slo import Slo
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec

Objective = Literal["users", "users-per-gpu", "tok-s-per-gpu"]
UNITS: dict[Objective, str] = {
    "users": "requests in flight within limits",
    "users-per-gpu": "requests in flight within limits, per GPU",
    "tok-s-per-gpu": "output tok/s/GPU",
}


@dataclass(frozen=True, kw_only=True)
class Worth:
    """``value`` in the objective's unit, of ``deployment``; 0 with a ``reason`` where it cannot
    run."""

    value: float
    deployment: Deployment
    reason: str = ""


Goal = Callable[[Deployment], Worth]


def goal_of(
    objective: Objective,
    spec: WorkloadSpec,
    slos: Sequence[Slo],
    *,
    best_parallelism: int | None = None,
) -> Goal:
    """Returns what values deployments on one workload, each at most once.

    With ``best_parallelism`` a deployment is worth what it is with the best tensor-parallel size of
    1, 2, 4, 8 … up to that many GPUs, one replica. UserError where the workload fixes a load that
    the objective searches.
    """
    if objective != "tok-s-per-gpu":
        check_fixed(spec)

    @cache
    def alone(deployment: Deployment) -> Worth:
        try:
            value = _value(objective, deployment, spec, slos)
        except UserError as error:
            reason = " ".join(str(error).split())
            return Worth(value=0.0, deployment=deployment, reason=reason)
        return Worth(value=value, deployment=deployment)

    @cache
    def best(deployment: Deployment) -> Worth:
        if best_parallelism is None:
            return alone(deployment)
        tried = [alone(one) for one in shapes(deployment, best_parallelism)]
        return max(tried, key=lambda worth: worth.value)

    return best


def shapes(deployment: Deployment, most_gpus: int) -> Iterator[Deployment]:
    """Yields the deployment at every power of two of GPUs that share a layer."""
    size, node = 1, get_gpu(deployment.gpu).gpus_per_node
    while size <= min(most_gpus, node):
        yield replace(deployment, tensor_parallel_size=size, replicas=1)
        size *= 2


def _value(
    objective: Objective, deployment: Deployment, spec: WorkloadSpec, slos: Sequence[Slo]
) -> float:
    if objective == "tok-s-per-gpu":
        run = simulate(deployment, build_workload(spec), seed=spec.seed)
        return run.metrics()["output_tok_s_per_gpu"]

    @cache
    def look(load: Load, seed: int) -> Observation:
        return observe(deployment, spec, load, slos, seed)

    cap = load_cap(deployment, "concurrency")
    users = boundary_of(look, slos, "concurrency", spec.seed, start=1.0, cap=cap).holds
    return users / deployment.num_gpus if objective == "users-per-gpu" else users
