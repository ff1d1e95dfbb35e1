"""The border between a user's text and the frozen dataclasses inside.

Everything a user writes (a YAML file, flags) becomes one mapping and passes here once: unknown
keys, wrong types and values out of range are all reported together, each with its key path, what
was found, what is allowed and the nearest spelling.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import annotated_types

from dynosim.hardware_models.errors import InputErrors, UserError

T = TypeVar("T")

MAX_FILE_BYTES = 4_000_000
"""A deployment or space is a page of text; larger files are traces given by mistake."""


def read_text(path: Path, what: str) -> str:
    """Returns the text of a small UTF-8 file; UserError says what stands there instead."""
    try:
        if path.is_dir():
            raise UserError("this is a folder", where=str(path), hint=f"allowed: {what}")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError("file is too large", where=str(path), hint=f"allowed: {what}")
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError("no such file", where=str(path), hint=_neighbours(path)) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(f"cannot be read: {reason}", where=str(path)) from None
    try:
        if b"\0" in data:
            raise ValueError
        return data.decode("utf-8-sig")
    except ValueError:
        raise UserError("binary file, not text", where=str(path), hint=f"allowed: {what}") from None


def _neighbours(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    names = sorted(p.name for p in path.parent.iterdir() if p.is_file())
    near = difflib.get_close_matches(path.name, names, n=4, cutoff=0.5)
    return f"nearest: {', '.join(near)}" if near else f"nothing like it in {path.parent}"


def validate(cls: type[T], values: Mapping[str, Any], *, where: str = "") -> T:
    """Returns ``values`` as a ``cls``; InputErrors names every key that does not fit.

    ``cls`` is a plain keyword-only dataclass; ``where`` (a file, or empty) heads the message.
    """
    from pydantic import TypeAdapter, ValidationError

    hints = typing.get_type_hints(cls, include_extras=True)
    errors = [*_unknown_keys(values, hints), *_odd_scalars(values, hints)]
    known = {k: v for k, v in values.items() if k in hints}
    try:
        built = TypeAdapter(cls).validate_python(known)
    except ValidationError as error:
        seen = {e.where for e in errors}
        for item in error.errors(include_url=False, include_context=False, include_input=True):
            problem = _problem(item["loc"], item["type"], item["input"], hints)
            if problem.where not in seen:
                seen.add(problem.where)
                errors.append(problem)
        raise InputErrors(errors, where=where) from None
    if errors:
        raise InputErrors(errors, where=where)
    return built


def _unknown_keys(values: Mapping[str, Any], known: Mapping[str, Any]) -> list[UserError]:
    """Returns one error a key that is not in ``known``; the last one lists what is allowed."""
    unknown = [str(key) for key in values if key not in known]
    errors = []
    for key in unknown:
        plain = key.replace("-", "_").lower()
        near = difflib.get_close_matches(plain, known, n=3, cutoff=0.5)
        hints = [f"nearest: {', '.join(near)}"] if near else []
        if key == unknown[-1]:
            hints.append(f"allowed keys: {', '.join(sorted(known))}")
        errors.append(UserError("unknown key", where=key, hint="; ".join(hints)))
    return errors


def _odd_scalars(values: Mapping[str, Any], hints: Mapping[str, Any]) -> list[UserError]:
    """Returns errors for what YAML allows and a number must not be: true as 1, and NaN."""
    errors = []
    for key, value in values.items():
        if key not in hints:
            continue
        as_number = isinstance(value, bool) and bool not in members(hints[key])
        if as_number or (isinstance(value, float) and math.isnan(value)):
            errors.append(_found(key, value, describe(hints[key])))
    return errors


def _problem(
    loc: tuple[int | str, ...], kind: str, found: object, hints: Mapping[str, Any]
) -> UserError:
    key = str(loc[0]) if loc else ""
    allowed = describe(hints[key]) if key in hints else ""
    if kind == "missing":
        return UserError("missing, and has no default", where=key, hint=f"allowed: {allowed}")
    return _found(key, found, allowed)


def _found(key: str, found: object, allowed: str) -> UserError:
    text = repr(found)
    short = text if len(text) <= 60 else f"{text[:57]}..."
    return UserError(f"found {short}", where=key, hint=f"allowed: {allowed}")


def members(hint: Any) -> tuple[Any, ...]:
    """Returns the plain types of an annotation, with ``Annotated`` and unions taken apart."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return members(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(m for arg in typing.get_args(hint) for m in members(arg))
    return (hint,)


WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
SIGNS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))


def describe(hint: Any) -> str:
    """Returns an annotation in words: ``a whole number ≥ 1``, ``one of auto, fp8``, …"""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        base, *extras = typing.get_args(hint)
        bounds = [b for extra in extras for b in _bounds(extra)]
        return f"{describe(base)} {' and '.join(bounds)}".strip()
    if origin in (typing.Union, types.UnionType):
        parts = [describe(a) for a in typing.get_args(hint) if a is not type(None)]
        empty = ["nothing (null)"] if type(None) in typing.get_args(hint) else []
        return " or ".join(dict.fromkeys(parts + empty))
    if origin is typing.Literal:
        return f"one of {', '.join(str(a) for a in typing.get_args(hint))}"
    if origin in (tuple, list):
        return f"a list, each {describe(typing.get_args(hint)[0])}"
    if dataclasses.is_dataclass(hint):
        return f"a mapping with {', '.join(f.name for f in dataclasses.fields(hint))}"
    return WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def _bounds(extra: object) -> list[str]:
    if isinstance(extra, annotated_types.Interval):
        return [f"{sign} {getattr(extra, n)}" for n, sign in SIGNS if getattr(extra, n) is not None]
    return [f"{sign} {getattr(extra, name)}" for name, sign in SIGNS if hasattr(extra, name)]
