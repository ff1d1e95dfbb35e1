"""Names in a space that no catalogue knows, found before any trial runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from dynosim.hardware_models.backends import get_backend
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.llm.catalog import get_model
from dynosim.hardware_models.registry import find_module
from dynosim.hardware_models.resolve import quantized
from dynosim.search.dimension import Dimension
from dynosim.search.source import Source
from dynosim.sim.deployment import Deployment

LookUp = Callable[[Any], Hashable]

_LOOK_UPS: dict[str, LookUp] = {
    "model": lambda name: get_model(name).name,
    "gpu": lambda name: get_gpu(name).key,
    "prefill_gpu": lambda name: name and get_gpu(name).key,
    "backend": lambda name: get_backend(name).name,
    "router": lambda name: find_module("dynosim.sim.cluster.routers", "router", name).__name__,
    "prefill_router": lambda name: (
        name and find_module("dynosim.sim.cluster.routers", "router", name).__name__
    ),
    "load_balance_method": lambda name: (
        name and find_module("dynosim.sim.cluster.balancers", "load balance method", name).__name__
    ),
}
"""What each name means: two spellings of one thing mean the same."""


def meaning(name: str, value: str) -> Hashable:
    """Returns what ``value`` means as field ``name``: itself, where it is no catalogue's name.

    Raises UserError where the field's catalogue does not know it.
    """
    look_up = _LOOK_UPS.get(name)
    return value if look_up is None else look_up(value)


def name_problems(dimensions: Iterable[Dimension], source: Source) -> list[UserError]:
    """Returns one error a name of a model, GPU, backend, version or router that is unknown.

    A version or a quantisation is known where at least one backend or model of the space has it;
    the combinations that do not exist are infeasible candidates.
    """
    by_name = {d.name: d for d in dimensions}
    problems = []
    for name, look_up in _LOOK_UPS.items():
        if name in by_name:
            problems += _unknown_or_twice(by_name[name], look_up, source)
    backends = _values(by_name, "backend", Deployment.backend)
    problems += _no_owner(by_name, "backend_version", get_backend, backends, source)
    if not problems:
        models = [get_model(name) for name in _values(by_name, "model", None)]
        problems += _no_owner(by_name, "quantization", quantized, models, source)
    return problems


def _values(by_name: dict[str, Dimension], name: str, default: object) -> list[Any]:
    return list(by_name[name].values) if name in by_name else [default] if default else []


def _unknown_or_twice(dimension: Dimension, look_up: LookUp, source: Source) -> list[UserError]:
    problems, meanings = [], dict[Hashable, str]()
    for i, name in enumerate(dimension.values):
        path = (dimension.name, i) if len(dimension) > 1 else (dimension.name,)
        try:
            meaning = look_up(name)
        except UserError as error:
            where = error.where and f" ({error.where})"
            problems.append(source.error(path, f"{error.message}{where}", error.hint))
            continue
        if meaning in meanings:
            problems.append(source.error(path, f"{name!r} and {meanings[meaning]!r} are the same"))
        meanings.setdefault(meaning, name)
    return problems


def _no_owner(
    by_name: dict[str, Dimension],
    name: str,
    look_up: Callable[[Any, Any], object],
    owners: list[Any],
    source: Source,
) -> list[UserError]:
    """Returns one error a value of ``name`` that no owner accepts."""
    if name not in by_name:
        return []
    dimension, problems = by_name[name], []
    for i, value in enumerate(dimension.values):
        errors = []
        for owner in owners:
            try:
                look_up(owner, value)
            except UserError as error:
                errors.append(error)
        if owners and len(errors) == len(owners):
            path = (name, i) if len(dimension) > 1 else (name,)
            problems.append(source.error(path, errors[0].message, errors[0].hint))
    return problems
