"""What a field of a dataclass accepts: checked, and described in words."""

from __future__ import annotations

import math
import operator
import types
import typing
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

import annotated_types

from dynosim.hardware_models.errors import UserError
from dynosim.search.source import KeyPath, Source

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_SIGNS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))


@cache
def field_types(cls: type[Any]) -> dict[str, Any]:
    """Returns the annotations of a dataclass by field name, in the order of its fields."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name: hints[name] for name in cls.__dataclass_fields__}


def check(hint: Any, value: object, path: KeyPath, source: Source) -> UserError | None:
    """Returns the problem of one value against one annotation, or None.

    Strict: text is not a number, ``true`` is not 1.
    """
    if accepts(hint, value):
        return None
    return source.error(path, f"found {shown(value)}", _hint(hint, value))


def accepts(hint: Any, value: object) -> bool:
    """Whether a plain value fits an annotation of plain types, unions, literals and bounds.

    Not a number never fits. (Pydantic would say the same, at 0.1 s of every command's start.)
    """
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        base, *extras = typing.get_args(hint)
        return accepts(base, value) and all(_within(extra, value) for extra in extras)
    if origin in (typing.Union, types.UnionType):
        return any(accepts(member, value) for member in typing.get_args(hint))
    if origin is Literal:
        return any(value == o and type(value) is type(o) for o in typing.get_args(hint))
    if isinstance(value, bool) or hint is bool:
        return hint is bool and isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not math.isnan(value)
    return isinstance(value, hint)


def _within(bound: object, value: Any) -> bool:
    holds = {"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le}
    limits = {name: getattr(bound, name, None) for name in holds}
    return all(limit is None or holds[name](value, limit) for name, limit in limits.items())


def _hint(hint: Any, value: object) -> str:
    parts = []
    options = [str(o) for m in members(hint) if typing.get_origin(m) is Literal for o in m.__args__]
    close = nearest(str(value), options)
    if close:
        parts.append(f"nearest: {', '.join(close)}")
    parts.append(f"allowed: {describe(hint)}")
    if str in members(hint) and isinstance(value, int | float) and not isinstance(value, bool):
        parts.append(f'write it in quotes: "{value}"')
    return "; ".join(parts)


def shown(value: object) -> str:
    """Returns a value as it may stand in a message: at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Returns up to three spellings of ``known`` close to ``name``."""
    names = sorted(known)
    import difflib

    return difflib.get_close_matches(name.replace("-", "_").lower(), names, n=3, cutoff=0.5)


def members(hint: Any) -> tuple[Any, ...]:
    """Returns the plain types of an annotation, with ``Annotated`` and unions taken apart."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return members(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(m for arg in typing.get_args(hint) for m in members(arg))
    return (hint,)


def describe(hint: Any) -> str:
    """Returns an annotation in words: ``a whole number ≥ 1``, ``one of auto, fp8``, …"""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        base, *extras = typing.get_args(hint)
        bounds = [bound for extra in extras for bound in _bounds(extra)]
        return f"{describe(base)} {' and '.join(bounds)}".strip()
    if origin in (typing.Union, types.UnionType):
        parts = [describe(a) for a in typing.get_args(hint) if a is not type(None)]
        empty = ["null"] if type(None) in typing.get_args(hint) else []
        return " or ".join(dict.fromkeys(parts + empty))
    if origin is Literal:
        return f"one of {', '.join(str(a) for a in typing.get_args(hint))}"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def _bounds(extra: object) -> list[str]:
    if isinstance(extra, annotated_types.Interval):
        return [
            f"{sign} {getattr(extra, n)}" for n, sign in _SIGNS if getattr(extra, n) is not None
        ]
    return [f"{sign} {getattr(extra, name)}" for name, sign in _SIGNS if hasattr(extra, name)]
