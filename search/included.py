"""``include:`` and ``preset:``: a space that stands on other files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import unknown_name
from dynosim.search.field_type import shown
from dynosim.search.source import KeyPath, Source, read_yaml
from dynosim.search.workload_section import FILE_FIELDS

PRESETS = Path(__file__).parent / "presets"
MERGED = ("workload", "slos", "constraints", "when")
"""Sections that are put together key by key; anything else is replaced as a whole."""

MAX_DEPTH = 8


def presets() -> tuple[str, ...]:
    """Returns the names that ``preset:`` knows, sorted."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.yaml")))


def with_included(
    values: Mapping[str, Any], source: Source, depth: int = 0
) -> tuple[dict[str, Any], Source]:
    """Returns the values with those of the preset and the included files below them.

    Of two files that give the same key the later wins, and the space's own wins over both. File
    names are relative to the file that names them. UserError where a file does not read, or
    includes itself.
    """
    merged: dict[str, Any] = {}
    origins: dict[KeyPath, Source] = {}
    for path in [*_preset(values, source), *_files(values, source)]:
        if depth == MAX_DEPTH:
            raise source.error(("include",), f"{MAX_DEPTH} files deep: does one include itself?")
        below, below_source = with_included(*_read(path), depth + 1)
        _put(merged, origins, below, below_source)
    if not merged:
        return _without_includes(values), source
    _put(merged, origins, _without_includes(values), source)
    return merged, replace(source, origins=origins)


def _read(path: Path) -> tuple[dict[str, Any], Source]:
    values, source = read_yaml(path)
    return _rebased(values, path.resolve().parent), source


def _preset(values: Mapping[str, Any], source: Source) -> list[Path]:
    name = values.get("preset")
    if name is None:
        return []
    spelled = str(name).replace("_", "-").lower()
    if spelled not in presets():
        error = unknown_name("preset", str(name), presets())
        raise source.error(("preset",), error.message, error.hint)
    return [PRESETS / f"{spelled}.yaml"]


def _files(values: Mapping[str, Any], source: Source) -> list[Path]:
    given = values.get("include") or []
    names = given if isinstance(given, list) else [given]
    found = []
    for i, name in enumerate(names):
        path: KeyPath = ("include", i) if isinstance(given, list) else ("include",)
        if not isinstance(name, str):
            raise source.error(path, f"found {shown(name)}", "allowed: the name of a YAML file")
        file = (source.folder or Path()) / name
        if not file.is_file():
            raise source.error(path, f"no such file: {file}", f"presets: {', '.join(presets())}")
        found.append(file)
    return found


def _without_includes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in ("include", "preset")}


def _put(
    merged: dict[str, Any],
    origins: dict[KeyPath, Source],
    values: Mapping[str, Any],
    source: Source,
) -> None:
    """Lays ``values`` over what is there and notes where each comes from."""
    for key, value in values.items():
        below = merged.get(key)
        if key in MERGED and isinstance(value, dict) and isinstance(below, dict):
            merged[key] = {**below, **value}
            origins.update({(key, str(k)): source for k in value})
        else:
            merged[key] = value
            for known in [p for p in origins if p[0] == key]:
                del origins[known]
            origins[(key,)] = source


def _rebased(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Returns the values with files named from anywhere, not from ``folder``."""
    workload = values.get("workload")
    if isinstance(workload, dict):
        files = {
            k: os.path.normpath(folder / v)
            for k, v in workload.items()
            if str(k).replace("-", "_") in FILE_FIELDS and isinstance(v, str)
        }
        values = {**values, "workload": {**workload, **files}}
    model = values.get("model")
    if isinstance(model, str) and (folder / model).exists():
        values = {**values, "model": str(folder / model)}
    elif isinstance(model, list):
        paths = [
            str(folder / m) if isinstance(m, str) and (folder / m).exists() else m for m in model
        ]
        values = {**values, "model": paths}
    return values
