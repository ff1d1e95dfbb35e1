"""How much of the original model's accuracy a checkpoint's weight format keeps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.llm.architecture import LlmArchitecture
from dynosim.hardware_models.llm.catalog import list_models

OVERRIDES = "DYNOSIM_QUALITY"
"""Environment variable that names a YAML file of formats or hub names and their quality."""


def quality_of(model: LlmArchitecture, overrides: Mapping[str, float] | None = None) -> float:
    """Returns the share of accuracy kept, at most 1; the KV cache's format is not judged.

    The lower of linear layers and experts. ``overrides`` maps a hub name, which goes before all
    else, or a weight format to its quality; None: those of the file that :data:`OVERRIDES` names.
    Raises UserError for a file that does not read, unknown keys and values outside (0, 1].
    """
    own = _overrides(os.environ.get(OVERRIDES)) if overrides is None else overrides
    _check(own, "overrides")
    if model.name in own:
        return own[model.name]
    formats = {model.quantization.linear}
    if model.is_moe:
        formats.add(model.quantization.experts)
    if any(model.name.startswith(prefix) for prefix in _native()):
        return min(own.get(name, 1.0) for name in formats)
    return min(own.get(name, _shipped()[name]) for name in formats)


@lru_cache(maxsize=1)
def _shipped() -> dict[str, float]:
    rows = read_yaml(DATA / "quality.yaml")["formats"]
    return {name: float(row["value"]) for name, row in rows.items()}


@lru_cache(maxsize=1)
def _native() -> tuple[str, ...]:
    return tuple(read_yaml(DATA / "quality.yaml")["native"]["models"])


@lru_cache(maxsize=8)
def _overrides(path: str | None) -> dict[str, float]:
    if not path:
        return {}
    content = read_yaml(Path(path))
    _check(content, path)
    return {str(name): float(value) for name, value in content.items()}


def _check(overrides: Mapping[str, object], where: str) -> None:
    for name, value in overrides.items():
        if "/" not in name and name not in _shipped():
            raise unknown_name("weight format", name, [*_shipped(), *list_models()], where=where)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise UserError(
                f"{name}: {value!r} is no share of accuracy", where=where, hint="0 < quality <= 1"
            )
