"""Which overheads a fit may move, how far, and which measured metrics it goes by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dynosim.accuracy.kinds import quantity_of
from dynosim.hardware_models.backends import Backend, version_key
from dynosim.hardware_models.cards import read_yaml

_FILE = Path(__file__).resolve().parent / "data" / "parameters.yaml"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One figure of a backend, fitted by its natural logarithm.

    ``prior`` is where the fit starts and what it is drawn to, ``spread`` the standard error of
    its logarithm; ``low`` and ``high`` are physical bounds.
    """

    name: str
    prior: float
    spread: float
    low: float
    high: float


@lru_cache(maxsize=1)
def _book() -> dict[str, Any]:
    return read_yaml(_FILE)


def parameters_of(backend: Backend) -> tuple[Parameter, ...]:
    """Returns the overheads of a backend that can be fitted; what it does not have stays so."""
    found = []
    for name, row in _book()["parameters"].items():
        prior = getattr(backend, name) or row.get("start")
        if not prior:
            continue
        prior = min(max(prior, row["low"]), row["high"])
        found.append(
            Parameter(
                name=name, prior=prior, spread=row["spread"], low=row["low"], high=row["high"]
            )
        )
    return tuple(found)


def era_of(backend: str, version: str) -> str:
    """Returns the version since which overheads are those of ``version``, "" before the first."""
    key = version_key(version)
    since = [str(v) for v in _book()["eras"].get(backend, [])]
    return max((v for v in since if version_key(v) <= key), key=version_key, default="")


def fitted_metrics(measured: Mapping[str, float]) -> dict[str, float]:
    """Returns metric -> standard error of its logarithm, for the measured metrics that count.

    Of a quantity with several statistics the mean counts, else the median; percentiles further out
    are left to judge by.
    """
    chosen: dict[str, str] = {}
    for metric in sorted(measured):
        quantity = quantity_of(metric)
        if quantity in _book()["fitted"] and _is_positive(measured[metric]):
            chosen.setdefault(quantity, metric)
    return {metric: float(_book()["noise"][quantity]) for quantity, metric in chosen.items()}


def _is_positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
