"""A search space: which deployments are candidates, on what workload, judged by what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from annotated_types import Ge

from dynosim.hardware_models.engine_args import Positive
from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.search.dimension import Dimension, parse_dimension
from dynosim.search.field_type import check, field_types, nearest
from dynosim.search.grid import Grid
from dynosim.search.known_names import name_problems
from dynosim.search.objective import DEFAULT_OBJECTIVES, Objective, parse_objectives
from dynosim.search.slo import Slo, parse_slos
from dynosim.search.source import Source, read_yaml
from dynosim.search.workload_section import parse_workload
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from dynosim.search.rehearsal import DryRun
    from dynosim.sim.workload.columns import Workload

DEFAULT_TRIALS = 200

ALIASES = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "tensor_parallel": "tensor_parallel_size",
    "pipeline_parallel": "pipeline_parallel_size",
    "data_parallel": "data_parallel_size",
    "gpus": "max_gpus",
    "trials": "n_trials",
}

_SETTINGS: dict[str, Any] = {
    "max_gpus": Positive | None,
    "n_trials": Positive,
    "seed": Annotated[int, Ge(0)],
}
_SECTIONS = ("workload", "objectives", "slos", *_SETTINGS)


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Candidates are all combinations of the dimensions' values, in the order of ``grid``.

    ``n_trials`` is the number of simulations to spend; candidates that fail before simulation
    cost nothing. ``slos`` and ``max_gpus`` are constraints.
    """

    dimensions: tuple[Dimension, ...]
    workload: WorkloadSpec
    objectives: tuple[Objective, ...] = DEFAULT_OBJECTIVES
    slos: tuple[Slo, ...] = ()
    max_gpus: int | None = None
    n_trials: int = DEFAULT_TRIALS
    seed: int = 0

    @cached_property
    def grid(self) -> Grid:
        """The coordinates of the candidates; fields in the order of ``Deployment``'s."""
        return Grid(
            names=tuple(d.name for d in self.dimensions),
            lengths=tuple(len(d) for d in self.dimensions),
            is_ordered=tuple(d.is_ordered for d in self.dimensions),
        )

    @property
    def size(self) -> int:
        """Number of candidates, feasible or not."""
        return self.grid.size

    @property
    def varied(self) -> tuple[Dimension, ...]:
        """The dimensions with more than one value."""
        return tuple(d for d in self.dimensions if len(d) > 1)

    def deployment(self, index: int) -> Deployment:
        """Returns the candidate of a flat index."""
        at = self.grid.coordinates(index)
        return Deployment(**{d.name: d.values[i] for d, i in zip(self.dimensions, at, strict=True)})

    def deployments(self) -> Iterator[Deployment]:
        """Yields every candidate in index order."""
        return map(self.deployment, range(self.size))

    def dry_run(self, workload: Workload | None = None) -> DryRun:
        """Returns what :func:`dynosim.search.rehearsal.dry_run` says of this space."""
        from dynosim.search.rehearsal import dry_run

        return dry_run(self, workload=workload)

    def to_mapping(self) -> dict[str, Any]:
        """Returns the space as plain values, as it would stand in YAML with defaults filled in."""
        return {
            **{d.name: list(d.values) if len(d) > 1 else d.values[0] for d in self.dimensions},
            "workload": {k: v for k, v in asdict(self.workload).items() if v is not None},
            "objectives": [asdict(o) for o in self.objectives],
            "slos": _nested(self.slos),
            "max_gpus": self.max_gpus,
            "n_trials": self.n_trials,
            "seed": self.seed,
        }


def _nested(slos: tuple[Slo, ...]) -> dict[str, dict[str, float]]:
    nested: dict[str, dict[str, float]] = {}
    for slo in slos:
        nested.setdefault(slo.kind, {})[slo.statistic] = slo.limit_ms
    return nested


def load_space(path: str | Path) -> SearchSpace:
    """Returns the space of a YAML file; UserError or InputErrors name file, line and key path."""
    values, source = read_yaml(Path(path))
    return parse_space(values, source)


def parse_space(values: Mapping[str, Any], source: Source | None = None) -> SearchSpace:
    """Returns the space written as a mapping; InputErrors lists every problem at once.

    Keys are the fields of :class:`Deployment` (``-`` and ``_`` are equal), each one value, a
    list, ``{options: [...]}`` or ``{min, max, step, log}``, and the sections ``workload``,
    ``objectives``, ``slos``, ``max_gpus``, ``n_trials`` and ``seed``.
    """
    return _SpaceParser(source or Source()).parse(values)


class _SpaceParser:
    """Collects the parts of a space and all that is wrong with them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._errors: list[UserError] = []
        self._fields = field_types(Deployment)

    def parse(self, values: Mapping[str, Any]) -> SearchSpace:
        named = self._canonical_keys(values)
        parts: dict[str, Any] = {}
        self._keep(parts, "workload", named, parse_workload)
        self._keep(parts, "objectives", named, parse_objectives)
        self._keep(parts, "slos", named, parse_slos)
        for key, hint in _SETTINGS.items():
            if key in named:
                problem = check(hint, named[key], (key,), self._source)
                self._errors.extend([problem] if problem else [])
                parts[key] = named[key]
        dimensions = self._dimensions(named)
        if self._errors:
            self._fail()
        return SearchSpace(dimensions=dimensions, **parts)

    def _canonical_keys(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values under their own names, in the order of fields and sections."""
        known = (*self._fields, *_SECTIONS)
        named: dict[str, Any] = {}
        unknown = []
        for key, value in values.items():
            name = str(key).replace("-", "_").lower()
            name = ALIASES.get(name, name)
            if name not in known:
                unknown.append(str(key))
                continue
            if name in named:
                self._errors.append(
                    self._source.error((key,), f"{name} stands twice, in two spellings")
                )
            if name != key:
                self._source = self._source.renamed(key, name)
            named[name] = value
        for key in unknown:
            close = nearest(key, (*known, *ALIASES))
            hints = [f"nearest: {', '.join(close)}"] if close else []
            hints += [f"allowed: {', '.join(known)}"] if key == unknown[-1] else []
            self._errors.append(self._source.error((key,), "unknown key", "; ".join(hints)))
        return named

    def _dimensions(self, named: Mapping[str, Any]) -> tuple[Dimension, ...]:
        found = []
        for name, hint in self._fields.items():
            if name not in named:
                continue
            value = named[name]
            try:
                dimension = parse_dimension(name, hint, value, self._source)
            except UserError as error:
                self._add(error)
                continue
            if name == "model":
                dimension = _with_paths(dimension, self._source.folder)
            found.append(dimension)
        for name in ("model", "gpu"):
            if name not in named:
                self._errors.append(self._source.error((), f"{name} is missing and has no default"))
        self._errors.extend(name_problems(found, self._source))
        return tuple(found)

    def _keep(self, parts: dict[str, Any], key: str, named: Mapping[str, Any], parse: Any) -> None:
        """Stores the parsed section, if given; notes what is wrong with it."""
        if key not in named:
            if key == "workload":
                parts[key] = WorkloadSpec()
            return
        try:
            parts[key] = parse(named[key], self._source)
        except UserError as error:
            self._add(error)

    def _add(self, error: UserError) -> None:
        self._errors.extend(error.errors if isinstance(error, InputErrors) else [error])

    def _fail(self) -> NoReturn:
        errors = sorted(self._errors, key=lambda error: self._source.line(error.where))
        raise errors[0] if len(errors) == 1 else InputErrors(errors)


def _with_paths(dimension: Dimension, folder: Path | None) -> Dimension:
    """Returns model paths as seen from the space's own folder."""
    if folder is None:
        return dimension
    paths = [folder / str(value) for value in dimension.values]
    values = (str(p) if p.exists() else v for p, v in zip(paths, dimension.values, strict=True))
    return Dimension(dimension.name, tuple(values))
