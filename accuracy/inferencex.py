"""How InferenceX starts an engine: flags, checkpoint and version of a run, from its recipes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dynosim.hardware_models.cards import read_yaml

_FILE = Path(__file__).resolve().parent / "data" / "inferencex.yaml"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What recipes are chosen by; ``weights`` is one of fp8, fp4, int4, bf16, ``gpu`` a key,
    ``tp`` the GPUs of a replica."""

    backend: str
    model: str
    weights: str
    gpu: str
    tp: int
    isl: int
    osl: int
    concurrency: int


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Flags of the engine, figures of the backend that flags changed, and flags not modelled."""

    flags: Mapping[str, Any]
    figures: Mapping[str, Any]
    unmodelled: tuple[str, ...]


@lru_cache(maxsize=1)
def _book() -> dict[str, Any]:
    return read_yaml(_FILE)


def checkpoint(model: str, weights: str) -> str | None:
    """Returns the hub name behind a name of the sample, None where no checkpoint is known."""
    name: str | None = _book()["checkpoints"].get(_short(model), {}).get(weights)
    return name


def version_on(backend: str, day: str) -> str | None:
    """Returns the engine's version in the configurations of ``day`` (ISO), None before them all."""
    since = {str(k): str(v) for k, v in _book()["versions"][backend].items()}
    known = [d for d in sorted(since) if d <= day]
    return since[known[-1]] if known else None


def recipe(run: Run) -> Recipe:
    """Returns everything that the recipes say of a run; later ones replace earlier ones."""
    flags, figures, unmodelled = dict[str, Any](), dict[str, Any](), list[str]()
    for entry in _book()["recipes"]:
        if all(_fits(getattr(run, key), wanted) for key, wanted in entry["where"].items()):
            flags |= {k: _value(v, run) for k, v in entry.get("flags", {}).items()}
            figures |= entry.get("figures", {})
            unmodelled += entry.get("unmodelled", [])
    return Recipe(flags=flags, figures=figures, unmodelled=tuple(unmodelled))


def has_warm_ups(day: str) -> bool:
    """Returns whether runs of ``day`` (ISO) were preceded by prompts that warm the engine.

    Rows that name no day came through a list made after warm-ups were introduced.
    """
    return not day or day >= str(_book()["warm_ups_since"])


def _short(model: str) -> str:
    return model.rpartition("/")[2]


def _fits(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return bool(wanted.get("at_least", found) <= found < wanted.get("below", math.inf))
    choices = wanted if isinstance(wanted, list) else [wanted]
    return (_short(found) if isinstance(found, str) else found) in choices


def _value(value: Any, run: Run) -> Any:
    """Returns a flag's value; one that follows the run is a sum of multiples, rounded up."""
    if not isinstance(value, dict):
        return value
    total = sum(n * getattr(run, k) for k, n in value.items() if k in ("isl", "osl", "concurrency"))
    step = value.get("multiple_of", 1)
    return -(-(total + value.get("plus", 0)) // step) * step
