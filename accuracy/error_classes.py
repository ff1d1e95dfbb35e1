"""What predictions are off by, class by class: quantiles of errors on held-out groups.

A class is told by what a prediction knows of itself. For each kind of metric there are rows of
several grains; the finest with enough groups is the one to go by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.calibration.overheads import gpu_class
from dynosim.hardware_models.gpus import get_gpu

if TYPE_CHECKING:
    from dynosim.accuracy.errors import Residual

LEVEL = 0.8
"""Share of measurements that an interval is meant to hold."""
LEAST_GROUPS = 3
"""Groups below which a class says too little of a group that nobody has seen."""

FIELDS = ("gpu", "gpu_class", "backend", "model_class", "basis", "regime")
GRAINS: tuple[tuple[str, ...], ...] = (
    ("gpu", "gpu_class", "backend", "model_class", "basis", "regime"),
    ("gpu_class", "backend", "model_class", "basis", "regime"),
    ("gpu_class", "backend", "basis", "regime"),
    ("backend", "model_class", "basis", "regime"),
    ("backend", "basis", "regime"),
    ("basis", "regime"),
    ("basis",),
    (),
)
"""Which fields tell classes apart, the finest grain first."""

Key = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ErrorClass:
    """Errors of one class as ln(measured / predicted); "*" in ``key`` (by FIELDS) is any value.

    ``low`` and ``high`` bound the middle 80 %, groups counting alike.
    """

    quantity: str
    key: Key
    points: int
    groups: int
    low: float
    median: float
    high: float


def key_of(fields: dict[str, str], grain: Sequence[str]) -> Key:
    """Returns a class's key at one grain."""
    return tuple(fields[f] if f in grain else "*" for f in FIELDS)


def fields_of(residual: Residual) -> dict[str, str]:
    """Returns what tells a residual's class."""
    return {
        "gpu": residual.gpu,
        "gpu_class": gpu_class(get_gpu(residual.gpu)),
        "backend": residual.backend,
        "model_class": residual.model_class,
        "basis": residual.basis,
        "regime": residual.regime,
    }


def error_classes(residuals: Iterable[Residual]) -> dict[tuple[str, Key], ErrorClass]:
    """Returns the classes of all grains that have enough groups, by quantity and key."""
    pools: dict[tuple[str, Key], list[Residual]] = {}
    for residual in residuals:
        fields = fields_of(residual)
        for key in dict.fromkeys(key_of(fields, grain) for grain in GRAINS):
            pools.setdefault((residual.quantity, key), []).append(residual)
    return {
        (quantity, key): _class_of(quantity, key, pool)
        for (quantity, key), pool in sorted(pools.items())
        if len({r.group for r in pool}) >= LEAST_GROUPS
    }


def _class_of(quantity: str, key: Key, pool: Sequence[Residual]) -> ErrorClass:
    errors = np.array([np.log(r.measured / r.predicted) for r in pool])
    groups = [r.group for r in pool]
    sizes = {g: groups.count(g) for g in set(groups)}
    weights = np.array([1.0 / sizes[g] for g in groups])
    tail = (1.0 - LEVEL) / 2.0
    low, median, high = weighted_quantiles(errors, weights, (tail, 0.5, 1.0 - tail))
    return ErrorClass(
        quantity=quantity,
        key=key,
        points=len(pool),
        groups=len(sizes),
        low=low,
        median=median,
        high=high,
    )


def weighted_quantiles(
    values: FloatArray, weights: FloatArray, shares: Sequence[float]
) -> list[float]:
    """Returns quantiles of weighted values, linear between the middles of their weights."""
    order = np.argsort(values)
    ordered, at = values[order], np.cumsum(weights[order])
    middles = (at - 0.5 * weights[order]) / at[-1]
    return [float(x) for x in np.interp(shares, middles, ordered)]


def find_class(
    classes: dict[tuple[str, Key], ErrorClass], quantity: str, fields: dict[str, str]
) -> ErrorClass | None:
    """Returns the finest class that a prediction falls into; None where no quantity is like it."""
    for grain in GRAINS:
        found = classes.get((quantity, key_of(fields, grain)))
        if found is not None:
            return found
    return None
