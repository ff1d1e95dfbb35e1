"""Cases that share overheads: one backend in one era on one class of GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

import numpy as np

from dynosim.accuracy.case import Case
from dynosim.accuracy.halves import fold_of
from dynosim.accuracy.measured_set import rank
from dynosim.accuracy.parameters import era_of
from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.backends import Backend, version_key
from dynosim.hardware_models.calibration.overheads import gpu_class
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine

FOLDS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibrationClass:
    """``cases`` of one ``backend``, ``era`` and ``gpu_class``, by version oldest first."""

    backend: str
    gpu_class: str
    era: str
    cases: tuple[Case, ...]

    @property
    def name(self) -> str:
        """Says which class it is, in words."""
        oldest, newest = self.versions
        span = oldest if oldest == newest else f"{oldest} to {newest}"
        return f"{self.backend} {span} on {self.gpu_class}"

    @cached_property
    def versions(self) -> tuple[str, str]:
        """The oldest and the newest version of the backend."""
        found = sorted({_engine(c).backend.version for c in self.cases}, key=version_key)
        return found[0], found[-1]

    @property
    def card(self) -> Backend:
        """The backend as its card, or an earlier calibration, has it."""
        return _engine(self.cases[0]).backend

    @property
    def in_use(self) -> Mapping[str, float]:
        """The figures of an earlier calibration that its cases are predicted with."""
        calibration = _engine(self.cases[0]).calibration
        return {} if calibration is None else calibration.figures

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of its cases, sorted."""
        return tuple(sorted({c.group for c in self.cases}))

    def folds(self) -> IntArray:
        """Returns each case's fold, shape (cases,); groups stay together.

        Where there is but one group, every case is one: it is then held out by points.
        """
        groups = self.groups
        if len(groups) == 1:
            return np.arange(len(self.cases)) % min(FOLDS, len(self.cases))
        if len(groups) <= FOLDS:
            return np.array([groups.index(c.group) for c in self.cases])
        return np.array([fold_of(c.group, FOLDS) for c in self.cases])


def classes_of(cases: Iterable[Case], size: int | None = None) -> list[CalibrationClass]:
    """Returns the classes of ``cases``, sorted, each with at most ``size`` of them.

    Cases are taken from all groups in turn, within a group in an order of chance that is always
    the same. Cases whose names are not known are left out: they cannot be simulated either.
    """
    found: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        try:
            engine = _engine(case)
        except UserError:
            continue
        backend = engine.backend
        key = (backend.name, gpu_class(engine.gpu), era_of(backend.name, backend.version))
        found.setdefault(key, []).append(case)
    return [
        CalibrationClass(backend=b, gpu_class=g, era=e, cases=tuple(in_turn(found[b, g, e], size)))
        for b, g, e in sorted(found)
    ]


def in_turn(cases: Sequence[Case], size: int | None = None) -> list[Case]:
    """Returns at most ``size`` cases, one from each group before a second from any."""
    groups: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda c: rank(c.row)):
        groups.setdefault(case.group, []).append(case)
    rounds = zip_longest(*(groups[name] for name in sorted(groups)))
    return [case for turn in rounds for case in turn if case is not None][:size]


def _engine(case: Case) -> ResolvedEngine:
    return resolve_engine(case.deployment)
