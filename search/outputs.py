"""The files of a run. Those that results are compared by hold no time, path or worker count."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import dynosim
from dynosim.hardware_models.errors import UserError
from dynosim.search.field_type import shown
from dynosim.search.figure import frontier_figure, save_png, save_svg
from dynosim.search.frontier import reference_point
from dynosim.search.identity import data_sha256, space_sha256, versions, workload_sha256
from dynosim.search.result import SearchResult
from dynosim.search.run_folder import CANDIDATES, RunFolder
from dynosim.search.shared_study import without_password
from dynosim.search.table import to_csv, trial_columns, trial_rows
from dynosim.search.trial import Trial
from dynosim.search.workload_section import FILE_FIELDS
from dynosim.sim.workload.columns import Workload

TableFormat = Literal["csv", "parquet"]
REPORT_FILES = ("report.html", "frontier.png", "frontier.svg")


def write_outputs(
    folder: RunFolder,
    result: SearchResult,
    workload: Workload,
    *,
    table_format: TableFormat = "csv",
    is_described: bool = True,
) -> None:
    """Writes tables, figures, candidates, manifest and report; each file appears in one piece.

    ``is_described`` says that ``workload`` is what the space describes, so that candidates' files
    can name it.
    """
    columns = trial_columns(result)
    folder.clear_candidates()
    folder.write("frontier.csv", to_csv(columns, trial_rows(result, result.frontier)))
    if table_format == "csv":
        folder.write("trials.csv", to_csv(columns, trial_rows(result)))
    else:
        folder.write_with("trials.parquet", lambda path: _write_parquet(result, path))
    context = _context(result) if is_described else {}
    for trial in result.frontier:
        folder.write(_candidate_name(result, trial), _candidate(result, trial, context))
    failures = "".join(map(_failure, (t for t in result.trials if t.reason == "error")))
    if failures:
        folder.write("failures.txt", failures.encode())
    about = manifest(result, workload)
    folder.write("manifest.json", _json(about))
    folder.write("run.json", _json(_run(result)))
    write_report(folder, result, about, is_described=is_described)


def write_report(
    folder: RunFolder, result: SearchResult, about: Mapping[str, Any], *, is_described: bool = True
) -> None:
    """Writes ``report.html``, ``frontier.png`` and ``frontier.svg``; ``about`` is the manifest."""
    from dynosim.search.report.document import document
    from dynosim.search.report.page import page

    figure = frontier_figure(result)
    folder.write_with("frontier.png", lambda path: save_png(figure, path))
    folder.write_with("frontier.svg", lambda path: save_svg(figure, path))
    context = _yaml(_context(result)) if is_described else ""
    files = {t.number: _candidate_name(result, t) for t in result.frontier}
    shown = document(result, about, context=context, files=files)
    folder.write("report.html", page(shown).encode())


def check_table_format(table_format: str) -> None:
    """Raises UserError where the tables cannot be written in this format."""
    if table_format not in get_args(TableFormat):
        raise UserError(
            f"found {shown(table_format)}", where="table_format", hint="allowed: csv, parquet"
        )
    if table_format == "parquet" and find_spec("pyarrow") is None:
        raise UserError(
            "parquet needs pyarrow", where="table_format", hint="pip install 'dynosim[parquet]'"
        )


def _write_parquet(result: SearchResult, path: Path) -> None:
    frame = result.to_frame()
    frame.to_parquet(path, index=False)


def _context(result: SearchResult) -> dict[str, Any]:
    """Returns the keys under which a candidate's file repeats workload, SLOs and seed."""
    space = result.space
    given = {k: v for k, v in asdict(space.workload).items() if space.workload.given(k)}
    slos = space.to_mapping()["slos"]
    return {"workload": given, **({"slos": slos} if slos else {}), "seed": space.seed}


def _candidate_name(result: SearchResult, trial: Trial) -> str:
    width = max(3, len(str(len(result.trials))))
    return f"{CANDIDATES}/{trial.number:0{width}d}.yaml"


def _candidate(result: SearchResult, trial: Trial, context: dict[str, Any]) -> bytes:
    """Returns the YAML that ``dynosim simulate`` takes to run the trial again."""
    objectives = result.space.objectives
    pairs = zip(objectives, trial.values(objectives), strict=True)
    figures = ", ".join(f"{objective.metric} {value:.6g}" for objective, value in pairs)
    deployment = {k: v for k, v in asdict(trial.deployment).items() if v is not None}
    text = _yaml({**deployment, **context})
    return f"# Trial {trial.number}: {figures}\n{text}".encode()


def _yaml(values: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(values), sort_keys=False))


def _failure(trial: Trial) -> str:
    return f"trial {trial.number}: {trial.deployment}\n{trial.detail}\n{trial.traceback}\n"


def manifest(result: SearchResult, workload: Workload) -> dict[str, Any]:
    """Returns what a run was made of and what it came to; the same for any number of workers."""
    packages = ("numpy", "simpy", "scipy", "optuna", "moocore", "matplotlib")
    objectives = result.space.objectives
    return {
        "versions": {
            "dynosim": dynosim.__version__,
            "data_sha256": data_sha256(),
            "python": sys.version.split()[0],
            **versions(*packages),
        },
        "space": _without_folders(result.space.to_mapping()),
        "space_sha256": space_sha256(result.space, workload),
        "size": result.space.size,
        "workload": {"sha256": workload_sha256(workload), **workload.describe()},
        "seed": result.space.seed,
        "mode": result.mode,
        "ending": result.ending,
        "trials": len(result.trials),
        "feasible": sum(t.is_feasible for t in result.trials),
        "infeasible": dict(sorted(result.reasons.items())),
        "frontier": [t.number for t in result.frontier],
        "knee": result.knee and result.knee.number,
        "cheapest": result.cheapest and result.cheapest.number,
        "hypervolume": result.hypervolume,
        "hypervolume_gains": [
            [gain.simulations, gain.trial, gain.hypervolume] for gain in result.convergence.gains
        ],
        "importances": {item.metric: dict(item.shares) for item in result.importances},
        **({"non_dominated_shares": result.shares_best} if result.shares_best else {}),
        "hypervolume_reference": list(reference_point(result.trials, objectives)),
    }


def _without_folders(space: dict[str, Any]) -> dict[str, Any]:
    """Returns the space with bare file names: the same in every checkout."""
    files = {k: Path(v).name for k, v in space["workload"].items() if k in FILE_FIELDS}
    return {**space, "workload": {**space["workload"], **files}}


def _run(result: SearchResult) -> dict[str, Any]:
    simulated = sum(t.is_simulated for t in result.trials)
    return {
        "command": [without_password(argument) for argument in sys.argv],
        "files": {
            name: str(Path(value).resolve())
            for name in FILE_FIELDS
            if (value := getattr(result.space.workload, name)) is not None
        },
        "workers": result.workers,
        "wall_s": round(result.wall_s, 3),
        "simulated": simulated,
        "simulated_by_this_call": result.simulated_here,
        "simulations_per_s": round(result.simulated_here / max(result.wall_s, 1e-9), 3),
    }


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, default=str) + "\n").encode()
