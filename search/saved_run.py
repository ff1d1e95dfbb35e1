"""A search's result, read back from its output folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.search.defaults import estimator_of, full_screen, speller, twin_finder
from dynosim.search.identity import workload_sha256
from dynosim.search.ledger import read_trials
from dynosim.search.outcome import Screen
from dynosim.search.plan import plan_search
from dynosim.search.result import SearchResult
from dynosim.search.rules import rules_screen
from dynosim.search.run_folder import JOURNAL
from dynosim.search.space import SearchSpace, parse_space
from dynosim.search.trial import judge
from dynosim.search.workload_section import FILE_FIELDS
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload


@dataclass(frozen=True)
class SavedRun:
    """``screen`` says why a candidate of the run's space cannot run.

    ``is_described`` says that the space still gives the workload that was searched under.
    """

    result: SearchResult
    screen: Screen
    manifest: Mapping[str, Any]
    is_described: bool


def load_run(folder: str | Path, *, has_estimates: bool = True) -> SavedRun:
    """Returns the run in a folder that ``search`` wrote.

    With estimates of all candidates if its workload is at hand and ``has_estimates`` asks for
    them. Nothing is written. UserError where the folder holds no run.
    """
    path = Path(folder)
    manifest, run = _json(path, "manifest.json"), _json(path, "run.json")
    space = _space(manifest["space"], run)
    trials = tuple(
        judge(number, deployment, outcome, space.objectives, space.limits)
        for number, deployment, outcome in read_trials(path / JOURNAL)
    )
    result = SearchResult(
        space=space,
        trials=trials,
        mode=manifest["mode"],
        ending=manifest["ending"],
        output_dir=path,
        is_open=manifest["workload"].get("max_concurrency") is None,
        shares_best={int(k): v for k, v in manifest.get("non_dominated_shares", {}).items()},
    )
    load = _workload(space, manifest["workload"]["sha256"])
    if load is None:
        rules = rules_screen(space.budget, space.requirements, space.bounds)
        return SavedRun(replace(result, screen=rules), rules, manifest, is_described=False)
    screen, spelled = full_screen(space, load), speller(load)
    screening = None
    if result.mode == "screened" and has_estimates:
        screening = plan_search(
            space, screen, estimator_of(space, load), twin_finder(load)
        ).screening
    whole = replace(result, screening=screening, spelled=spelled, screen=screen)
    return SavedRun(whole, screen, manifest, is_described=True)


def _json(folder: Path, name: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(
            f"holds no finished run: {name} does not read",
            where=str(folder),
            hint="give the --output-dir of a `dynosim search`",
        ) from None
    return content


def _space(values: dict[str, Any], run: dict[str, Any]) -> SearchSpace:
    """Returns the run's space; the manifest has bare file names, ``run.json`` their paths."""
    files = {name: path for name, path in run.get("files", {}).items() if Path(path).is_file()}
    named = {k: v for k, v in values["workload"].items() if k not in FILE_FIELDS}
    is_whole = len(files) == len(values["workload"]) - len(named)
    return parse_space({**values, "workload": {**named, **files} if is_whole else {}})


def _workload(space: SearchSpace, sha256: str) -> Workload | None:
    """Returns the workload that was searched under; None where the space does not give it."""
    load = build_workload(space.workload)
    return load if workload_sha256(load) == sha256 else None
