"""The border between what a user writes and the frozen dataclasses inside.

A file and flags become one mapping and pass here once: unknown keys, missing ones, wrong types
and values out of range are all reported together, each with where it was written, what was found,
what is allowed and the nearest spelling.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.search.field_type import check, describe, field_types, nearest
from dynosim.search.source import KeyPath, Source

T = TypeVar("T")


@dataclass(frozen=True)
class FlagSource(Source):
    """Locations in a file (or in none) of which flags override some keys."""

    flags: frozenset[str] = field(default_factory=frozenset)

    def where(self, path: KeyPath) -> str:
        """Returns the flag that gave the value, else ``file:line: key.path``."""
        name = str(path[-1]) if path else ""
        if name in self.flags:
            return f"--{name.replace('_', '-')}"
        return super().where(path) if self.name else name


def validate(cls: type[T], values: Mapping[str, Any], source: Source, *, at: KeyPath = ()) -> T:
    """Returns ``values`` as a ``cls``, a keyword-only dataclass; InputErrors tells all that is wrong.

    ``at`` is the key path of the mapping in its file.
    """
    types = field_types(cls)
    errors = _unknown(values, types, source, at)
    for name, hint in types.items():
        if name in values:
            problem = check(hint, values[name], (*at, name), source)
            errors += [problem] if problem else []
    errors += _missing(cls, values, source, at)
    if errors:
        raise InputErrors(errors)
    return cls(**values)


def _unknown(
    values: Mapping[str, Any], types: Mapping[str, Any], source: Source, at: KeyPath
) -> list[UserError]:
    """Returns one error for each key that is not a field; the last one lists the fields."""
    unknown = [key for key in values if key not in types]
    errors = []
    for key in unknown:
        close = nearest(key, types)
        hints = [f"nearest: {', '.join(close)}"] if close else []
        hints += [f"allowed: {', '.join(sorted(types))}"] if key == unknown[-1] else []
        errors.append(source.error((*at, key), "unknown key", "; ".join(hints)))
    return errors


def _missing(
    cls: type[Any], values: Mapping[str, Any], source: Source, at: KeyPath
) -> list[UserError]:
    types = field_types(cls)
    return [
        source.error(
            (*at, f.name),
            "missing",
            f"allowed: {describe(types[f.name])}; as a flag: --{f.name.replace('_', '-')}",
        )
        for f in dataclasses.fields(cls)
        if f.default is dataclasses.MISSING and f.name not in values
    ]
