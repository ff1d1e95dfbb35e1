"""Which shapes to measure, read from a grid file, the most useful first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.measure.case import Case
from dynosim.hardware_models.measure.families import KEYS
from dynosim.hardware_models.registry import own_names

OPS = "dynosim.hardware_models.measure.ops"
LIMIT = "at_most"

Product = dict[str, Any]
"""Axes, and ``at_most``."""
Grid = Mapping[str, Sequence[Product]]
"""Products by family."""


def list_grids() -> tuple[str, ...]:
    """Returns the names of the shipped grids, sorted."""
    return tuple(sorted(p.stem for p in (DATA / "measure").glob("*.yaml")))


def families() -> tuple[str, ...]:
    """Returns the table families that can be measured, sorted."""
    return tuple(sorted(own_names(OPS)))


def read_grid(name: str) -> Grid:
    """Returns a grid by its shipped name or the path of a YAML file.

    It maps a family to products of axes (one, or a list of several): a key column, or several
    (``"n k"``), to a list of values (of rows of values), and ``at_most`` to limits on products of
    columns (``"batch_size kv_tokens": N``). Raises UserError, located, for unknown families and
    columns.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        if name not in list_grids():
            raise unknown_name("grid", name, list_grids(), where="--grid")
        path = DATA / "measure" / f"{name}.yaml"
    grid: dict[str, list[Product]] = {}
    for family, products in read_yaml(path).items():
        if family not in families():
            raise unknown_name("family", str(family), families(), where=str(path))
        grid[family] = products if isinstance(products, list) else [products]
        for axes in grid[family]:
            _check_axes(family, axes, where=f"{path}: {family}")
    return grid


def _check_axes(family: str, axes: Any, where: str) -> None:
    if not isinstance(axes, dict):
        raise UserError("expected a mapping of key columns to values", where=where)
    named = [column for group in axes if group != LIMIT for column in str(group).split()]
    for column in (*named, *(c for limit in axes.get(LIMIT, {}) for c in limit.split())):
        if column not in KEYS[family]:
            raise unknown_name("key column", column, KEYS[family], where=where)
    missing = [column for column in KEYS[family] if column not in named]
    if missing:
        raise UserError(f"no values for {', '.join(missing)}", where=where)
    for group, values in axes.items():
        if group != LIMIT:
            _check_values(values, len(str(group).split()), f"{where}.{group}")


def _check_values(values: Any, width: int, where: str) -> None:
    if not isinstance(values, list) or not values:
        raise UserError(f"found {values!r}", where=where, hint="allowed: a list of values")
    for value in values:
        cells = value if width > 1 else [value]
        if not isinstance(cells, list) or len(cells) != width:
            raise UserError(f"found {value!r}", where=where, hint=f"allowed: rows of {width}")
        if not all(isinstance(cell, str | int) for cell in cells):
            raise UserError(f"found {value!r}", where=where, hint="allowed: words, whole numbers")


def plan(
    grid: Grid,
    *,
    ops: Sequence[str] = (),
    dtypes: Sequence[str] = (),
) -> list[Case]:
    """Returns the grid's shapes, coarsest first, so that a run cut short still spans it.

    Of every axis the ends come first, then the middle, the quarters and so on; families take
    turns. ``ops`` keeps only these families, ``dtypes`` stands in for the dtypes of the grid.
    """
    for name in ops:
        if name not in families():
            raise unknown_name("op", name, families(), where="--ops")
    wanted = [(f, axes) for f, products in grid.items() for axes in products if not ops or f in ops]
    cases = [case for family, axes in wanted for case in _cases(family, axes, dtypes)]
    return _in_turns(dict.fromkeys(cases))


def _in_turns(cases: Iterable[Case]) -> list[Case]:
    """Returns the cases by rank; of one rank, families take turns."""
    turns: Counter[tuple[str, int]] = Counter()
    placed = []
    for case in cases:
        placed.append((case.rank, turns[case.family, case.rank], case))
        turns[case.family, case.rank] += 1
    return [case for *_, case in sorted(placed, key=lambda place: place[:2])]


def _cases(family: str, axes: Mapping[str, Any], dtypes: Sequence[str]) -> Iterable[Case]:
    groups = [group for group in axes if group != LIMIT]
    columns = [_with_dtypes(group, axes[group], dtypes) for group in groups]
    for positions in product(*(range(len(values)) for values in columns)):
        key: dict[str, Any] = {}
        rank = 0
        for group, values, position in zip(groups, columns, positions, strict=True):
            names, value = group.split(), values[position]
            key |= dict(zip(names, value if len(names) > 1 else [value], strict=True))
            if isinstance(value, int):
                rank = max(rank, level(position, len(values)))
        if _within(key, axes.get(LIMIT, {})):
            yield Case.of(family, key, rank)


def _with_dtypes(group: str, values: list[Any], dtypes: Sequence[str]) -> list[Any]:
    """Returns the values of an axis; of a dtype's, those the user asked for instead.

    An attention's two dtypes go together; 8 bits are asked of matrix products only.
    """
    names = group.split()
    if not dtypes or not all(name.endswith("_dtype") for name in names):
        return values
    if group == "gemm_dtype":
        return list(dtypes)
    wide = [dtype for dtype in dtypes if dtype != "fp8"] or values
    return wide if len(names) == 1 or wide is values else [[d] * len(names) for d in wide]


def _within(key: Mapping[str, Any], limits: Mapping[str, int]) -> bool:
    for group, most in limits.items():
        total = 1
        for column in group.split():
            total *= key[column]
        if total > most:
            return False
    return True


def level(position: int, length: int) -> int:
    """Returns how often an axis is halved before ``position`` is one of the points: 0 for ends."""
    low, high, depth = 0, length - 1, 0
    while position not in (low, high):
        middle = (low + high) // 2
        depth += 1
        if position == middle:
            return depth
        low, high = (low, middle) if position < middle else (middle, high)
    return depth if depth else 0
