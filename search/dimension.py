"""One searched field: its name and the finite list of values it may take.

A field of a space is written as one value, a list, ``{options: [...]}`` or a range
``{min, max, step, log}``. A linear range holds ``min, min + step, …`` up to ``max`` (step 1 for
whole numbers, required for others). With ``log: true`` it is geometric: ``min, min·step,
min·step², …`` up to ``max`` with ``step`` as the factor (2 where not given); whole-number fields
round each point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.search.field_type import check, members, nearest, shown
from dynosim.search.source import KeyPath, Source

MAX_POINTS = 10_000
RANGE_KEYS = ("min", "max", "step", "log")
FORMS = "one value, a list, {options: [...]} or {min, max, step, log}"


@dataclass(frozen=True)
class Dimension:
    """A field and its candidate values, in the order in which they were written."""

    name: str
    values: tuple[Any, ...]

    @property
    def is_ordered(self) -> bool:
        """Whether neighbours in ``values`` are near in effect: numbers in rising order."""
        numbers = [v for v in self.values if isinstance(v, int | float) and not isinstance(v, bool)]
        return len(numbers) == len(self.values) and sorted(numbers) == numbers

    def __len__(self) -> int:
        return len(self.values)


def parse_dimension(name: str, hint: Any, value: object, source: Source) -> Dimension:
    """Returns the dimension written as ``value``; InputErrors lists every value that is wrong."""
    path: KeyPath = (name,)
    if isinstance(value, dict) and "options" in value:
        extra = [k for k in value if k != "options"]
        if extra:
            raise source.error((name, extra[0]), "unknown key beside options", f"allowed: {FORMS}")
        value, path = value["options"], (name, "options")
        if not isinstance(value, list):
            raise source.error(path, f"found {shown(value)}", "allowed: a list of values")
    if isinstance(value, dict):
        return Dimension(name, _range(name, hint, value, source))
    if isinstance(value, list):
        return Dimension(name, _options(hint, value, path, source))
    problem = check(hint, value, path, source)
    if problem is not None:
        raise problem
    return Dimension(name, (value,))


def _options(hint: Any, values: list[Any], path: KeyPath, source: Source) -> tuple[Any, ...]:
    if not values:
        raise source.error(path, "empty list", f"allowed: {FORMS}")
    errors = []
    for i, value in enumerate(values):
        problem = check(hint, value, (*path, i), source)
        if problem is None and value in values[:i]:
            problem = source.error((*path, i), f"{shown(value)} stands twice")
        if problem is not None:
            errors.append(problem)
    if errors:
        raise InputErrors(errors)
    kinds = members(hint)
    return tuple(float(v) if float in kinds and isinstance(v, int) else v for v in values)


def _range(name: str, hint: Any, value: dict[str, Any], source: Source) -> tuple[Any, ...]:
    kinds = members(hint)
    is_whole = int in kinds
    if not (is_whole or float in kinds):
        raise source.error((name,), f"{name} is not a number and has no range", f"allowed: {FORMS}")
    errors = _range_problems(name, hint, value, is_whole, source)
    if errors:
        raise InputErrors(errors)
    low, high, is_log = value["min"], value["max"], value.get("log", False)
    step = value.get("step", 2 if is_log else 1)
    count = _num_points(low, high, step, is_log)
    if count > MAX_POINTS:
        raise source.error((name,), f"range of {count} points", f"allowed: at most {MAX_POINTS}")
    points = [low * step**i if is_log else low + i * step for i in range(count)]
    if is_whole:
        return tuple(dict.fromkeys(round(p) for p in points))
    return tuple(float(f"{p:.12g}") for p in points)


def _num_points(low: float, high: float, step: float, is_log: bool) -> int:
    span = math.log(high / low) / math.log(step) if is_log else (high - low) / step
    return math.floor(span + 1e-9) + 1


def _range_problems(
    name: str, hint: Any, value: dict[str, Any], is_whole: bool, source: Source
) -> list[UserError]:
    errors = []
    for key in value:
        if key not in RANGE_KEYS:
            close = nearest(key, RANGE_KEYS)
            head = f"nearest: {close[0]}; " if close else ""
            errors.append(source.error((name, key), "unknown key", f"{head}allowed: {FORMS}"))
    for key in ("min", "max"):
        if value.get(key) is None:
            errors.append(source.error((name,), f"{key} is missing", f"allowed: {FORMS}"))
        else:
            problem = check(hint, value[key], (name, key), source)
            errors.extend([problem] if problem else [])
    if not isinstance(value.get("log", False), bool):
        found = shown(value["log"])
        errors.append(source.error((name, "log"), f"found {found}", "allowed: true or false"))
    if not errors and value["min"] > value["max"]:
        found = f"min {value['min']} is larger than max {value['max']}"
        errors.append(source.error((name,), found))
    return errors or _step_problems(name, value, is_whole, source)


def _step_problems(
    name: str, value: dict[str, Any], is_whole: bool, source: Source
) -> list[UserError]:
    step, path = value.get("step"), (name, "step")
    if step is None:
        if is_whole or value.get("log"):
            return []
        return [source.error((name,), "step is missing", "allowed: a number > 0")]
    is_number = isinstance(step, int | float) and not isinstance(step, bool)
    if value.get("log"):
        allowed, fits = "a factor > 1 (log: true)", is_number and 1 < step < math.inf
    elif is_whole:
        allowed, fits = "a whole number ≥ 1", isinstance(step, int) and is_number and step >= 1
    else:
        allowed, fits = "a number > 0", is_number and 0 < step < math.inf
    return [] if fits else [source.error(path, f"found {shown(step)}", f"allowed: {allowed}")]
