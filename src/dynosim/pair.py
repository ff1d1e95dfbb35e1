"""Two deployments to compare, from two files or from one with ``baseline:`` and ``tuned:``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.question import only_candidate, read_question
from dynosim.search.slo import Slo
from dynosim.search.source import KeyPath, Source, read_yaml
from dynosim.search.space import parse_space
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

SIDES = ("baseline", "tuned")
ABOUT = ("title", "published", "source", "objective", "best_parallelism", "note")
"""Keys of a pair's file that say what was claimed of it, and how it is judged."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two deployments under one workload and its limits; ``about`` are the keys of ABOUT."""

    baseline: Deployment
    tuned: Deployment
    workload: WorkloadSpec
    slos: tuple[Slo, ...]
    about: Mapping[str, Any]


def read_pair(first: str, second: str | None) -> Pair:
    """Returns the pair; UserError or InputErrors say everything that is wrong."""
    if second is None:
        return read_pair_file(Path(first))
    one, other = read_question(first, {}), read_question(second, {})
    if other.workload not in (one.workload, WorkloadSpec(seed=other.workload.seed)):
        raise UserError(
            f"its workload differs from that of {first}",
            where=second,
            hint="both are judged on one workload: leave it out of the second file",
        )
    return Pair(
        baseline=one.deployment,
        tuned=other.deployment,
        workload=one.workload,
        slos=one.slos or other.slos,
        about={},
    )


def read_pair_file(path: Path) -> Pair:
    """Returns the pair of one file: fields that both share, and two sections of those that differ.

    UserError or InputErrors say everything that is wrong.
    """
    values, source = read_yaml(path)
    missing = [side for side in SIDES if not isinstance(values.get(side), dict)]
    if missing:
        hint = "allowed: sections baseline: and tuned:, or a second file"
        raise source.error((missing[0],), "is missing, or no mapping", hint)
    shared = {k: v for k, v in values.items() if k not in (*SIDES, *ABOUT)}
    sides = {side: _side(shared, values[side], side, source) for side in SIDES}
    (baseline, load, slos), (tuned, _, _) = (sides[side] for side in SIDES)
    about = {key: values[key] for key in ABOUT if key in values}
    return Pair(baseline=baseline, tuned=tuned, workload=load, slos=slos, about=about)


def _side(
    shared: Mapping[str, Any], own: Mapping[str, Any], side: str, source: Source
) -> tuple[Deployment, WorkloadSpec, tuple[Slo, ...]]:
    # Messages name the line inside of the section.
    lines: dict[KeyPath, int] = dict(source.lines)
    lines |= {path[1:]: line for path, line in source.lines.items() if path[:1] == (side,)}
    located = Source(source.name, source.folder, lines)
    space = parse_space({**shared, **own}, located)
    return only_candidate(space, located), space.workload, space.slos
