"""A search space: which deployments are candidates, on what workload, judged by what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from annotated_types import Ge, Gt

from dynosim.hardware_models.engine_args import Positive
from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.search.bound import Bound, Limit, parse_bounds
from dynosim.search.dimension import Dimension, parse_dimension
from dynosim.search.expression import Expression, parse_expression
from dynosim.search.field_type import check, field_types, nearest
from dynosim.search.grid import Grid
from dynosim.search.included import with_included
from dynosim.search.known_names import name_problems
from dynosim.search.objective import DEFAULT_OBJECTIVES, Objective, parse_objectives
from dynosim.search.rules import Budget
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
    "max_usd_per_hour": Annotated[float, Gt(0)] | None,
    "max_watts": Annotated[float, Gt(0)] | None,
    "n_trials": Positive,
    "seed": Annotated[int, Ge(0)],
}
_SECTIONS = ("workload", "objectives", "slos", "constraints", "when", "require", *_SETTINGS)
_DEFAULTS = {f.name: f.default for f in fields(Deployment)}


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Candidates are all combinations of the dimensions' values, in the order of ``grid``.

    ``n_trials`` is the number of simulations to spend; candidates that fail before simulation
    cost nothing. ``slos``, ``bounds``, ``requirements`` and the budgets are constraints. A field of
    ``conditions`` is searched only where its condition holds, and has its default elsewhere.
    """

    dimensions: tuple[Dimension, ...]
    workload: WorkloadSpec
    objectives: tuple[Objective, ...] = DEFAULT_OBJECTIVES
    slos: tuple[Slo, ...] = ()
    bounds: tuple[Bound, ...] = ()
    conditions: tuple[tuple[str, Expression], ...] = ()
    requirements: tuple[Expression, ...] = ()
    max_gpus: int | None = None
    max_usd_per_hour: float | None = None
    max_watts: float | None = None
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
        """Number of combinations of values, feasible or not."""
        return self.grid.size

    @property
    def budget(self) -> Budget:
        """What a deployment may have at most."""
        return Budget(
            max_gpus=self.max_gpus,
            max_usd_per_hour=self.max_usd_per_hour,
            max_watts=self.max_watts,
        )

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What the metrics of a feasible trial keep."""
        return (*self.slos, *self.bounds)

    @property
    def varied(self) -> tuple[Dimension, ...]:
        """The dimensions with more than one value."""
        return tuple(d for d in self.dimensions if len(d) > 1)

    def deployment(self, index: int) -> Deployment:
        """Returns the candidate of a flat index."""
        at = self.grid.coordinates(index)
        values = {d.name: d.values[i] for d, i in zip(self.dimensions, at, strict=True)}
        return self._settled(values)[0] if self.conditions else Deployment(**values)

    def index_of(self, deployment: Deployment) -> int:
        """Returns the normal flat index of one of the candidates.

        A field whose condition does not hold has a default that need not be among its values.
        """
        at = [
            d.values.index(value) if (value := getattr(deployment, d.name)) in d.values else 0
            for d in self.dimensions
        ]
        return self.normal(self.grid.index(at))

    def normal(self, index: int) -> int:
        """Returns the first flat index of the same deployment.

        Combinations that differ in fields whose conditions do not hold are one candidate.
        """
        if not self.conditions:
            return index
        at = list(self.grid.coordinates(index))
        values = {d.name: d.values[i] for d, i in zip(self.dimensions, at, strict=True)}
        for name in self._settled(values)[1]:
            at[self.grid.names.index(name)] = 0
        return self.grid.index(at)

    def _settled(self, values: dict[str, Any]) -> tuple[Deployment, set[str]]:
        """Returns the deployment of some values, and the fields whose conditions do not hold."""
        idle: set[str] = set()
        while True:
            given = {name: value for name, value in values.items() if name not in idle}
            deployment = Deployment(**given)
            found = {n for n, condition in self.conditions if not condition.holds(deployment)}
            if found <= idle:
                return deployment, idle
            idle |= found

    def deployments(self) -> Iterator[Deployment]:
        """Yields every candidate in index order."""
        return map(self.deployment, range(self.size))

    def dry_run(self, workload: Workload | None = None) -> DryRun:
        """Returns what :func:`dynosim.search.rehearsal.dry_run` says of this space."""
        from dynosim.search.rehearsal import dry_run

        return dry_run(self, workload=workload)

    def to_mapping(self) -> dict[str, Any]:
        """Returns the space as plain values, as it would stand in YAML with defaults filled in."""
        rules = {
            "constraints": _bound_mapping(self.bounds),
            "when": {name: str(condition) for name, condition in self.conditions},
            "require": [str(requirement) for requirement in self.requirements],
            "max_usd_per_hour": self.max_usd_per_hour,
            "max_watts": self.max_watts,
        }
        return {
            **{d.name: list(d.values) if len(d) > 1 else d.values[0] for d in self.dimensions},
            "workload": {k: v for k, v in asdict(self.workload).items() if v is not None},
            "objectives": [asdict(o) for o in self.objectives],
            "slos": _nested(self.slos),
            **{key: value for key, value in rules.items() if value},
            "max_gpus": self.max_gpus,
            "n_trials": self.n_trials,
            "seed": self.seed,
        }


def _nested(slos: tuple[Slo, ...]) -> dict[str, dict[str, float]]:
    nested: dict[str, dict[str, float]] = {}
    for slo in slos:
        nested.setdefault(slo.kind, {})[slo.statistic] = slo.limit_ms
    return nested


def _bound_mapping(bounds: tuple[Bound, ...]) -> dict[str, dict[str, float]]:
    nested: dict[str, dict[str, float]] = {}
    for bound in bounds:
        nested.setdefault(bound.metric, {})["min" if bound.is_least else "max"] = bound.limit
    return nested


def load_space(path: str | Path) -> SearchSpace:
    """Returns the space of a YAML file; UserError or InputErrors name file, line and key path."""
    values, source = read_yaml(Path(path))
    return parse_space(values, source)


def parse_space(values: Mapping[str, Any], source: Source | None = None) -> SearchSpace:
    """Returns the space written as a mapping; InputErrors lists every problem at once.

    Keys are the fields of :class:`Deployment` (``-`` and ``_`` are equal), each one value, a
    list, ``{options: [...]}`` or ``{min, max, step, log}``, and the sections ``workload``,
    ``objectives``, ``slos``, ``constraints``, ``when``, ``require``, ``max_gpus``,
    ``max_usd_per_hour``, ``max_watts``, ``n_trials`` and ``seed``; ``preset`` and ``include`` bring
    in other files (:mod:`dynosim.search.included`).
    """
    complete, origin = with_included(values, source or Source())
    return _SpaceParser(origin).parse(complete)


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
        self._keep(parts, "constraints", named, parse_bounds)
        if "constraints" in parts:
            parts["bounds"] = parts.pop("constraints")
        self._keep(parts, "require", named, _parse_requirements)
        if "require" in parts:
            parts["requirements"] = parts.pop("require")
        for key, hint in _SETTINGS.items():
            if key in named:
                problem = check(hint, named[key], (key,), self._source)
                self._errors.extend([problem] if problem else [])
                parts[key] = named[key]
        dimensions = self._dimensions(named)
        parts["conditions"] = self._conditions(named, dimensions)
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
            close = nearest(key, (*known, *ALIASES, "include", "preset"))
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

    def _conditions(
        self, named: Mapping[str, Any], dimensions: tuple[Dimension, ...]
    ) -> tuple[tuple[str, Expression], ...]:
        """Returns the conditions under ``when:``, by field."""
        given = named.get("when") or {}
        if not isinstance(given, dict):
            allowed = "allowed: a mapping such as {all2all_backend: data_parallel_size > 1}"
            self._errors.append(self._source.error(("when",), f"found {given!r}", allowed))
            return ()
        searched = [d.name for d in dimensions]
        found = []
        for key, text in given.items():
            name = ALIASES.get(str(key).replace("-", "_").lower(), str(key).replace("-", "_"))
            try:
                found.append((name, self._condition(name, text, str(key), searched)))
            except UserError as error:
                self._add(error)
        return tuple(found)

    def _condition(self, name: str, text: object, key: str, searched: list[str]) -> Expression:
        path = ("when", key)
        if name not in searched:
            close = nearest(name, searched)
            head = f"nearest: {', '.join(close)}; " if close else ""
            allowed = f"{head}allowed: the fields of this space, {', '.join(searched)}"
            raise self._source.error(path, "the space gives this field no values", allowed)
        if _DEFAULTS[name] is MISSING:
            raise self._source.error(path, f"{name} has no default to fall back on")
        condition = parse_expression(text, path, self._source)
        if name in condition.names:
            raise self._source.error(path, f"the condition of {name} cannot ask for {name} itself")
        return condition

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


def _parse_requirements(value: object, source: Source) -> tuple[Expression, ...]:
    """Returns the expressions under ``require:``; InputErrors lists every problem."""
    entries = value if isinstance(value, list) else [value]
    found, errors = [], []
    for i, entry in enumerate(entries):
        path = ("require", i) if isinstance(value, list) else ("require",)
        try:
            found.append(parse_expression(entry, path, source))
        except UserError as error:
            errors.append(error)
    if errors:
        raise InputErrors(errors)
    return tuple(found)


def _with_paths(dimension: Dimension, folder: Path | None) -> Dimension:
    """Returns model paths as seen from the space's own folder."""
    if folder is None:
        return dimension
    paths = [folder / str(value) for value in dimension.values]
    values = (str(p) if p.exists() else v for p, v in zip(paths, dimension.values, strict=True))
    return Dimension(dimension.name, tuple(values))
