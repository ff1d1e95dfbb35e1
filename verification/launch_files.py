"""The launch file of each pick and ready commands that load it, for who measures elsewhere."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module
from dynosim.planning.exports.base import Candidate
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.verification.choice import Pick
from dynosim.verification.document import pick_row
from dynosim.verification.load_file import spec_of, trace_text
from dynosim.verification.prepared import Prepared

_EXPORTS = "dynosim.planning.exports"
LOADS = ("vllm-bench", "aiperf", "guidellm", "inference-perf")
"""Targets of ``dynosim export`` that send a load."""

LOAD = "load.jsonl"
Files = dict[str, str]


def launch_files(prepared: Prepared, run: str) -> Files:
    """Returns path -> text: a folder a pick, and ``plan.json`` and ``README.md`` on top.

    Where no option of a tool describes the workload, it replays ``load.jsonl``. A tool that cannot
    do that either is named in ``plan.json`` with the reason. UserError where a pick's settings have
    no word in its launcher.
    """
    files: Files = {}
    rows = []
    for pick in prepared.picks:
        own, row = _pick_files(prepared, pick)
        files |= {f"{folder_of(pick)}/{name}": text for name, text in own.items()}
        rows.append({**pick_row(prepared, pick), **row})
    if any(f"../{LOAD}" in text for text in files.values()):
        files[LOAD] = trace_text(prepared.load)
    files["README.md"] = _readme(prepared.picks, run)
    return files | {"plan.json": _plan(rows, run)}


def folder_of(pick: Pick) -> str:
    """Returns the name of a pick's folder; results in it are told by it."""
    return f"trial-{pick.number:04d}"


def _pick_files(prepared: Prepared, pick: Pick) -> tuple[Files, dict[str, Any]]:
    candidate = prepared.candidate(pick)
    replay = spec_of(prepared.load, f"../{LOAD}", candidate.seed)
    files = dict(_written(candidate, candidate.backend))
    left_out = {}
    for tool in LOADS:
        try:
            texts = _load_files(candidate, replay, tool)
        except UserError as error:
            left_out[tool] = "; ".join(filter(None, (error.where, error.message, error.hint)))
            continue
        files |= {name.replace("bench", tool, 1): text for name, text in texts.items()}
    return files, {"files": sorted(files), "left_out": left_out}


def _load_files(candidate: Candidate, replay: WorkloadSpec, tool: str) -> Mapping[str, str]:
    try:
        return _written(candidate, tool)
    except UserError as error:
        try:
            return _written(dataclasses.replace(candidate, workload=replay), tool)
        except UserError:
            raise error from None


def _written(candidate: Candidate, target: str) -> Mapping[str, str]:
    texts: Mapping[str, str] = find_module(_EXPORTS, "target", target).write(candidate)
    return texts


def _plan(rows: Sequence[Mapping[str, Any]], run: str) -> str:
    return json.dumps({"run": run, "picks": list(rows)}, indent=2, allow_nan=False) + "\n"


def _readme(picks: Sequence[Pick], run: str) -> str:
    verify = f"    dynosim verify {shlex.quote(run)}"
    lines = [
        "# Measure these candidates",
        "",
        "For each folder: start the engine with its launch file, and send the load with one of the",
        "other scripts from inside of the folder. Do so three times or more, in rounds over all",
        "folders, and keep each result under a name of its own. Then:",
        "",
        f"{verify} --results trial-*/*.json",
        "",
        "Or let dynosim send it, to one engine after the other, and put them together:",
        "",
        *(f"{verify} --resume --url http://HOST:8000 --trials {pick.number}" for pick in picks),
        f"{verify} --results {shlex.quote(run)}/verification/runs/*.json",
        "",
        "A path tells its trial; `12=FILE` names one otherwise. Why each is worth measuring:",
        "",
        *(f"- `{folder_of(pick)}`: {pick.reason}" for pick in picks),
    ]
    return "\n".join(lines) + "\n"
