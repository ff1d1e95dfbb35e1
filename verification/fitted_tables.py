"""Writes a fit of an engine's steps as the files that every command takes."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

from dynosim.accuracy.calibrate import write_document
from dynosim.hardware_models.backends import Backend
from dynosim.hardware_models.calibration.overheads import gpu_class
from dynosim.hardware_models.cards import read_yaml
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.own_tables import HEADER, LATENCY
from dynosim.verification.step_fit import StepFit

CARD, OVERHEADS = "card.yaml", "overheads.yaml"

ATTENTION = ("context_attention", "generation_attention", "batch_attention")
LINEAR = ("gemm", "elementwise")


def write_fitted(engine: ResolvedEngine, fit: StepFit, about: str, folder: Path) -> None:
    """Writes ``folder``: the engine's own tables times the fit's factors, and its overheads.

    The folder is for ``--kernel-tables`` or, where the tables had a card, for ``--gpu
    FOLDER/card.yaml``; ``overheads.yaml`` in it for ``--calibration``. ``about`` says whose steps,
    in words. Ops that the tables lack keep the times that they have from elsewhere. Raises
    UserError for an engine without own tables.
    """
    if engine.gpu.own_tables is None:
        raise UserError("no own tables", where="kernel_tables", hint="dynosim calibrate measure")
    base = Path(engine.gpu.own_tables)
    factors = {
        **dict.fromkeys(LINEAR, fit.linear_factor),
        **dict.fromkeys(ATTENTION, fit.attention_factor),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(base.glob("*.csv")):
        family = path.name.split(".", 1)[0]
        _scale(path, folder / path.name, factors.get(family, 1.0))
    _header(base / HEADER, folder / HEADER, fit, about)
    if (base / CARD).is_file():
        shutil.copyfile(base / CARD, folder / CARD)
    write_document(_document(engine, fit, about), folder / OVERHEADS)


def _scale(path: Path, to: Path, factor: float) -> None:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row[LATENCY] = f"{float(row[LATENCY]) * factor:.6g}"
    with to.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def _header(path: Path, to: Path, fit: StepFit, about: str) -> None:
    fields = read_yaml(path)
    factors = f"products x {fit.linear_factor:.3f}, attention x {fit.attention_factor:.3f}"
    fields["source"] = f"{fields['source']}; {factors}, as in {fit.steps} steps of {about}"
    to.write_text("".join(f"{k}: {json.dumps(v)}\n" for k, v in fields.items()), encoding="utf-8")


def _document(engine: ResolvedEngine, fit: StepFit, about: str) -> dict[str, Any]:
    backend: Backend = engine.backend
    held_out = {"points": len(fit.held_out), "after": round(fit.held_out_error, 4)}
    row = {
        "backend": backend.name,
        "versions": [backend.version, backend.version],
        "gpu_class": gpu_class(engine.gpu),
        "figures": {name: float(f"{value:.4g}") for name, value in fit.figures.items()},
        "cases": len(fit.held_out),
        "groups": len(fit.held_out),
        "held_out": {"busy_time": held_out},
    }
    return {"fitted": {"steps": fit.steps, "of": about}, "rows": [row]}
