"""The canonical form of a deployment: candidates that share one give the same simulation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from typing import Any

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.llm.catalog import list_models
from dynosim.hardware_models.registry import find_module
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.search.engines import resolved
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import scheduler_name
from dynosim.sim.workload.columns import Workload

_EXPERTS_ONLY = ("enable_expert_parallel", "expert_distribution", "all2all_backend")
"""Fields that mean nothing to a model without experts."""

_SPECULATION = tuple(n for n in EngineArgs.__dataclass_fields__ if "speculative" in n)
"""Fields that mean nothing to an engine that drafts no tokens."""

_RANKS_ONLY = ("load_balance_method", "all2all_backend")
"""Fields that mean nothing to an engine of one data-parallel rank."""


_AROUND_ENGINES = {
    name: getattr(Deployment, name)
    for name in Deployment.__dataclass_fields__
    if name not in EngineArgs.__dataclass_fields__
}
"""Replicas, router, prefill pool and transfers, as they are where there is one engine."""

_ROUTING = tuple(RouterOptions.__dataclass_fields__)
"""Fields that mean nothing to one replica that takes every request."""

routing_of: Callable[[Deployment], tuple[Any, ...]] = attrgetter(*_ROUTING)
"""Returns the values of a deployment's routing fields."""


around_of: Callable[[Deployment], tuple[Any, ...]] = attrgetter(
    *(name for name in _AROUND_ENGINES if name not in _ROUTING)
)
"""Returns replicas, tiers, autoscaler and all else around the engines but the routing."""


def one_replica(deployment: Deployment) -> Deployment:
    """Returns one replica of the pool that decodes, or of all there is; engines are asked once.

    As ``dataclasses.replace``, at a tenth of its time: spaces have hundreds of thousands of them.
    """
    alone = copy(deployment)
    vars(alone).update(_AROUND_ENGINES)
    return alone


def same_simulation(workload: Workload) -> Callable[[Deployment], Hashable]:
    """Returns a function that gives equal values for deployments of equal canonical forms.

    Values are small: of a space of many engines each canonical form would be kilobytes.
    """
    shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    @lru_cache(maxsize=1 << 12)
    def form(alone: Deployment) -> bytes:
        return blake2b(repr(canonical(alone, workload)).encode(), digest_size=16).digest()

    def key(deployment: Deployment) -> Hashable:
        if deployment.prefill_replicas or deployment.is_scaled:
            return deployment
        is_alone = deployment.replicas == 1 and deployment.admits_all
        routing = () if is_alone else routing_of(deployment)
        plain = deployment.decode_pool if deployment.idle_fields else deployment
        around = around_of(plain)
        own, routing = form(one_replica(deployment)), shared.setdefault(routing, routing)
        return own, shared.setdefault(around, around), routing

    return key


def canonical(deployment: Deployment, workload: Workload) -> Deployment:
    """Returns a deployment with names and defaults spelled out, and without what has no effect.

    Under ``workload`` it gives exactly the metrics that ``deployment`` gives. One that names
    something unknown is its own canonical form; so is one of two pools, whose second takes over
    what is left open in the first, and fills it in for itself; and one whose replicas come and go.
    """
    if deployment.prefill_replicas or deployment.is_scaled:
        return deployment
    try:
        engine = resolved(one_replica(deployment), workload)
    except UserError:
        return deployment
    args = engine.args
    names = EngineArgs.__dataclass_fields__
    filled: dict[str, Any] = {name: getattr(args, name) for name in names}
    if engine.model.name not in list_models():
        filled["model"] = deployment.model  # A file: its name may be another's, too.
    if Path(deployment.gpu).suffix:
        filled["gpu"] = deployment.gpu
    filled |= {name: getattr(Deployment, name) for name in deployment.idle_fields}
    filled["max_model_len"] = _longest(deployment, engine)
    filled["scheduling_policy"] = args.scheduling_policy or _policies(engine)[0]
    for name in _idle(deployment, engine):
        filled[name] = getattr(Deployment, name)
    return replace(deployment, **filled)


def _longest(deployment: Deployment, engine: ResolvedEngine) -> int | None:
    """Returns the limit on requests; None where it was stretched to hold the longest of all."""
    declared = engine.model.max_position_embeddings
    is_stretched = deployment.max_model_len is None and engine.args.max_model_len != declared
    return None if is_stretched else engine.args.max_model_len


def _policies(engine: ResolvedEngine) -> tuple[str, ...]:
    name = scheduler_name(engine.backend.name)
    module = find_module("dynosim.sim.engine.schedulers", "scheduler", name)
    return tuple(module.POLICIES)


def _idle(deployment: Deployment, engine: ResolvedEngine) -> list[str]:
    """Returns the fields that have no effect on this deployment."""
    idle: list[str] = []
    if engine.model.moe is None:
        idle += _EXPERTS_ONLY
    if deployment.data_parallel_size == 1:
        idle += _RANKS_ONLY
    if engine.speculation is None:
        idle += _SPECULATION
    if deployment.replicas == 1 and deployment.admits_all:
        idle += _ROUTING
    idle += deployment.idle_scaling_fields
    return idle
