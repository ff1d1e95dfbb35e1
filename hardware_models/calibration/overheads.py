"""Fitted overheads: figures that replace a backend card's priors on a class of GPUs.

``data/calibrations/*.yaml`` are the shipped ones, written by ``dynosim calibrate fit``; a user's
own file has the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from dynosim.hardware_models.backends import Backend, version_key
from dynosim.hardware_models.cards import card_keys, read_card, read_yaml
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import Gpu

T = TypeVar("T")

NONE = "none"
"""The name of no calibration at all: the priors of the backend's card."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Overheads of one backend on one class of GPUs.

    ``versions`` are the oldest and newest that the measurements were made with; ``groups`` counts
    what they were held out by. ``held_out`` is the median absolute error of held-out groups by
    metric, with the priors and with these ``figures``, ``judged`` that of groups
    which no fit has seen.
    """

    backend: str
    versions: tuple[str, str]
    gpu_class: str
    figures: Mapping[str, float]
    cases: int
    groups: int
    held_out: Mapping[str, Mapping[str, float]]
    file: str
    judged: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def covers(self, version: str) -> bool:
        """Whether ``version`` lies between those measured."""
        oldest, newest = map(version_key, self.versions)
        return oldest <= version_key(version) <= newest

    def distance(self, version: str) -> tuple[int, ...]:
        """Returns how far ``version`` lies outside those measured, larger the farther."""
        oldest, newest = map(version_key, self.versions)
        at = version_key(version)
        nearest = min(max(at, oldest), newest)
        return tuple(abs(a - b) for a, b in zip(at, nearest, strict=True))


def gpu_class(gpu: Gpu) -> str:
    """Returns the class of GPUs that share overheads, by compute capability."""
    classes: dict[str, list[float]] = read_card("classes", "gpus")["compute_capability"]
    for name, capabilities in classes.items():
        if gpu.compute_capability in capabilities:
            return name
    return "other"


def calibration_for(backend: Backend, gpu: Gpu, file: str | None = None) -> Calibration | None:
    """Returns the overheads to use for a backend on a GPU; None where there are none.

    ``file`` is a user's own, ``none``, or None for those shipped. Of several rows the one of the
    nearest version is taken. Raises UserError for a file that is no calibration.
    """
    if file == NONE:
        return None
    own = (_rows(file),) if file else (_shipped(key) for key in card_keys("calibrations"))
    wanted = (backend.name, gpu_class(gpu))
    rows = [row for rows in own for row in rows if (row.backend, row.gpu_class) == wanted]
    return min(rows, key=lambda row: row.distance(backend.version), default=None)


def shipped_calibrations() -> tuple[Calibration, ...]:
    """Returns all overheads that come with dynosim."""
    return tuple(row for key in card_keys("calibrations") for row in _shipped(key))


@lru_cache(maxsize=16)
def _shipped(key: str) -> tuple[Calibration, ...]:
    return parse_calibration(read_card("calibrations", key), key)


@lru_cache(maxsize=16)
def _rows(file: str) -> tuple[Calibration, ...]:
    return parse_calibration(read_yaml(Path(file)), file)


def parse_calibration(content: Mapping[str, Any], file: str) -> tuple[Calibration, ...]:
    """Returns the rows of a calibration file; UserError names the row and the key at fault."""
    rows = content.get("rows")
    if not isinstance(rows, list):
        raise UserError("no calibration: `rows` is missing", where=file, hint=_HINT)
    return tuple(_row(row, f"{file}: rows[{i}]", file) for i, row in enumerate(rows))


_HINT = "`dynosim calibrate fit` writes such files"


def _row(row: Any, where: str, file: str) -> Calibration:
    if not isinstance(row, dict):
        raise UserError("expected a mapping of keys to values", where=where, hint=_HINT)
    needed = {f.name for f in fields(Calibration)} - {"file", "judged"}
    if missing := sorted(needed - row.keys()):
        raise UserError(f"{', '.join(missing)} missing", where=where, hint=_HINT)
    return Calibration(
        backend=_is(str, row, "backend", where),
        versions=_versions(row["versions"], f"{where}.versions"),
        gpu_class=_is(str, row, "gpu_class", where),
        figures=_figures(_is(dict, row, "figures", where), f"{where}.figures"),
        cases=_is(int, row, "cases", where),
        groups=_is(int, row, "groups", where),
        held_out=_is(dict, row, "held_out", where),
        file=file,
        judged=row.get("judged", {}),
    )


def _is(kind: type[T], row: dict[str, Any], key: str, where: str) -> T:
    value = row[key]
    if not isinstance(value, kind):
        raise UserError(f"found {value!r}", where=f"{where}.{key}", hint=_HINT)
    return value


def _versions(value: Any, where: str) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise UserError(f"found {value!r}", where=where, hint="allowed: [OLDEST, NEWEST]")
    try:
        oldest, newest = sorted(map(str, value), key=version_key)
    except UserError as error:
        raise error.at(where) from None
    return oldest, newest


def _figures(values: dict[str, Any], where: str) -> dict[str, float]:
    known = [f.name for f in fields(Backend) if f.type in ("float", "float | None")]
    for name, value in values.items():
        if name not in known:
            hint = f"allowed: {', '.join(known)}"
            raise UserError(f"unknown figure {name!r}", where=where, hint=hint)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e3:
            hint = "allowed: a number, 0 or more"
            raise UserError(f"found {value!r}", where=f"{where}.{name}", hint=hint)
    return {name: float(value) for name, value in values.items()}
