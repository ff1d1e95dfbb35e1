"""One question to the simulator: a deployment, its workload and its limits, from file and flags.

A file for ``simulate`` and ``memory`` is a search space in which every field has one value, so
both pass the border of :mod:`dynosim.search.space`: all that is wrong is told at once, with where
it was written, what was found and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynosim.flags import given
from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.search.slo import Slo, goodput_limits
from dynosim.search.source import KeyPath, Source, read_yaml
from dynosim.search.space import ALIASES, SearchSpace, parse_space
from dynosim.search.workload_section import FILE_FIELDS
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import ALIASES as WORKLOAD_ALIASES
from dynosim.sim.workload.spec import WorkloadSpec

GOODPUT_KINDS = ("ttft", "tpot", "e2el")
"""Latencies of which every request has one figure."""

NO_FLAGS: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Question:
    """What one simulation needs; ``goodput_ms`` are the limits of a good request, by kind."""

    deployment: Deployment
    workload: WorkloadSpec
    goodput_ms: Mapping[str, float]
    seed: int
    slos: tuple[Slo, ...] = ()


@dataclass(frozen=True)
class FlagSource(Source):
    """Locations in a file (or, without a name, in none) of which flags override some keys."""

    flags: frozenset[str] = field(default_factory=frozenset)

    def where(self, path: KeyPath) -> str:
        """Returns the flag that gave the value, else ``file:line: key.path``."""
        name = str(path[-1]) if path else ""
        if name in self.flags:
            return f"--{name.replace('_', '-')}"
        return super().where(path) if self.name else name


def read_question(
    file: str | None, flags: Mapping[str, Any] = NO_FLAGS, goodput: Sequence[str] = ()
) -> Question:
    """Returns the question that ``file`` asks, with the flags that were given in its stead.

    UserError or InputErrors say everything that is wrong.
    """
    values, written = read_yaml(Path(file)) if file else ({}, Source(name=""))
    engine, load = given(flags, Deployment), given(flags, WorkloadSpec)
    source = FlagSource(
        written.name, written.folder, written.lines, frozenset(engine) | frozenset(load)
    )
    if file:
        # Paths in a file are relative to it, those in flags to where the user stands.
        load |= {name: str(Path.cwd() / load[name]) for name in FILE_FIELDS if name in load}
    merged = _over(values, engine, ALIASES)
    section = values.get("workload", {})
    merged["workload"] = _over(section, load, WORKLOAD_ALIASES) if _is_map(section) else section
    if "seed" in load:
        merged["seed"] = load["seed"]
    if not file:
        _require(merged)
    limits_ms = parse_goodput(goodput)
    space = parse_space(merged, source)
    return Question(
        only_candidate(space, source),
        space.workload,
        limits_ms or {k: v for k, v in goodput_limits(space.slos).items() if k in GOODPUT_KINDS},
        space.seed,
        space.slos,
    )


def _over(
    written: Mapping[str, Any], flags: Mapping[str, Any], aliases: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the file's keys except those that flags give, in any spelling, then the flags."""

    def name(key: str) -> str:
        plain = key.replace("-", "_").lower()
        return aliases.get(plain, plain)

    return {k: v for k, v in written.items() if name(k) not in flags} | dict(flags)


def _is_map(value: object) -> bool:
    return isinstance(value, dict)


def _require(values: Mapping[str, Any]) -> None:
    errors = [
        UserError(f"--{name} is missing", hint=f"allowed: a name of `dynosim list {name}s`")
        for name in ("model", "gpu")
        if name not in values
    ]
    if errors:
        raise InputErrors(errors)


def parse_goodput(words: Sequence[str]) -> dict[str, float]:
    """Returns ``("ttft:500", "tpot:50")`` as limits in ms by kind; UserError for anything else."""
    limits_ms: dict[str, float] = {}
    for word in words:
        kind, _, number = word.partition(":")
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        if kind not in GOODPUT_KINDS or kind in limits_ms or not 0 < limit < math.inf:
            allowed = (
                f"allowed: KIND:MILLISECONDS, once each, KIND one of {', '.join(GOODPUT_KINDS)}"
            )
            raise UserError(f"found {word!r}", where="--goodput", hint=allowed)
        limits_ms[kind] = limit
    return limits_ms


def only_candidate(space: SearchSpace, source: Source) -> Deployment:
    """Returns the one deployment of a space; InputErrors where a field has many values."""
    errors = [
        source.error(
            (dimension.name,),
            f"found {len(dimension)} values",
            "allowed: one value; `dynosim search` takes many",
        )
        for dimension in space.varied
    ]
    if errors:
        raise InputErrors(errors)
    return space.deployment(0)
