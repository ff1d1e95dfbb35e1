"""The launch file of each pick and ready commands that load it, for who measures elsewhere."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module
from dynosim.planning.exports.base import Candidate
from dynosim.verification.choice import Pick
from dynosim.verification.prepared import Prepared

_EXPORTS = "dynosim.planning.exports"
LOADS = ("vllm-bench", "aiperf", "guidellm", "inference-perf")
"""Targets of ``dynosim export`` that send a load."""

Files = dict[str, str]


def launch_files(prepared: Prepared, run: str) -> Files:
    """Returns path -> text: a folder a pick, and ``plan.json`` and ``README.md`` on top.

    A load tool that cannot send the workload, and a launcher that has no word for a setting, are
    named in ``plan.json`` with the reason. UserError where a pick can be launched in no way.
    """
    files: Files = {}
    rows = []
    for pick in prepared.picks:
        own, row = _pick_files(prepared.candidate(pick), pick)
        files |= {f"{folder_of(pick)}/{name}": text for name, text in own.items()}
        rows.append({**_about(pick, prepared.objectives), **row})
    files["README.md"] = _readme(prepared.picks, run)
    return files | {"plan.json": _plan(rows, run)}


def folder_of(pick: Pick) -> str:
    """Returns the name of a pick's folder; results in it are told by it."""
    return f"trial-{pick.number:04d}"


def _pick_files(candidate: Candidate, pick: Pick) -> tuple[Files, dict[str, Any]]:
    files = dict(_written(candidate, candidate.backend))
    left_out = {}
    for tool in LOADS:
        try:
            texts = _written(candidate, tool)
        except UserError as error:
            left_out[tool] = " ".join(str(error).split())
            continue
        names = {name: name.replace("bench", tool, 1) for name in texts}
        files |= {names[name]: text for name, text in texts.items()}
    return files, {"files": sorted(files), "left_out": left_out}


def _written(candidate: Candidate, target: str) -> Mapping[str, str]:
    texts: Mapping[str, str] = find_module(_EXPORTS, "target", target).write(candidate)
    return texts


def _about(pick: Pick, objectives: Sequence[str]) -> dict[str, Any]:
    metrics = pick.trial.metrics
    shown = dict.fromkeys((*objectives, "median_ttft_ms", "median_tpot_ms", "request_throughput"))
    return {
        "trial": pick.number,
        "reason": pick.reason,
        "predicted": {m: metrics[m] for m in shown if math.isfinite(metrics.get(m, math.nan))},
    }


def _plan(rows: Sequence[Mapping[str, Any]], run: str) -> str:
    import json

    return json.dumps({"run": run, "picks": list(rows)}, indent=2, allow_nan=False) + "\n"


def _readme(picks: Sequence[Pick], run: str) -> str:
    lines = [
        "# Measure these candidates",
        "",
        "For each folder: start the engine with its launch file, send the load with one of the",
        "other scripts from inside of the folder, three times or more, round by round rather than",
        "one folder after the other, and keep each result under a name of its own. Then:",
        "",
        f"    dynosim verify {shlex.quote(run)} --results trial-*/*.json",
        "",
        "A path tells its trial; `12=FILE` names one otherwise. Why each is worth measuring:",
        "",
        *(f"- `{folder_of(pick)}`: {pick.reason}" for pick in picks),
    ]
    return "\n".join(lines) + "\n"
