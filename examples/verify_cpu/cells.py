"""Runs the calibration loads on the engine: `cells.py OUT PYTHON`; step logs go to OUT/cells.

Two rounds over all loads, so that a drift of the machine meets all alike.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import yaml

from dynosim.hardware_models.calibration.overheads import NONE
from dynosim.planning.exports.base import Candidate
from dynosim.question import read_question
from dynosim.sim.simulate import resolve_for
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import ALIASES, WorkloadSpec
from dynosim.verification.load.plan import plan_load
from dynosim.verification.load.token_ids import TokenIds
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.target import TargetOptions
from dynosim.verification.targets.vllm_in_process import SteppedVllm, VllmInProcess

HERE = Path(__file__).resolve().parent
ROUNDS = 2
WARM_UP = 2
RANGE = 0.5


def main(out: Path, python: str) -> None:
    """Measures all cells."""
    folder = out / "cells"
    shutil.rmtree(folder, ignore_errors=True)
    question = read_question(str(out / "served.yaml"), {"calibration": NONE})
    cells = all_cells()
    engine, _ = resolve_for(question.deployment, build_workload(cells[0]))
    candidate = Candidate(
        deployment=question.deployment, engine=engine, workload=cells[0], goodput_ms={}, seed=0
    )
    options = TargetOptions(folder=folder, command=(python,), arguments=("--dtype", "float32"))
    with VllmInProcess(options).run(candidate) as running:
        assert isinstance(running, SteppedVllm)
        for number in range(ROUNDS):
            for cell in cells:
                measure(running, cell, number)
    (folder / "done").touch()


def all_cells() -> list[WorkloadSpec]:
    """Returns the loads of cells.yaml."""
    return [spec(cell) for cell in yaml.safe_load((HERE / "cells.yaml").read_text())]


def spec(cell: dict[str, int]) -> WorkloadSpec:
    """Returns a load; lengths are spread by half."""
    fields = {ALIASES.get(name, name): value for name, value in cell.items()}
    return WorkloadSpec(**fields, random_range_ratio=RANGE)


def load_of(cell: WorkloadSpec, number: int) -> tuple[Workload, LoadPlan]:
    """Returns what is sent in a round: other lengths and other tokens than in the one before."""
    load = build_workload(replace(cell, seed=number))
    ids = TokenIds(first=1000, end=31_000, seed=1000 + number)
    return load, plan_load(load, ids, warmup=WARM_UP)


def log_of(folder: Path, cell: WorkloadSpec, number: int) -> Path:
    """Returns where the steps of a cell are; what is before the first dot names the load."""
    lengths = f"i{cell.random_input_len}-o{cell.random_output_len}"
    return folder / f"c{cell.max_concurrency}-{lengths}.{number}.jsonl.gz"


def measure(running: SteppedVllm, cell: WorkloadSpec, number: int) -> None:
    """Runs one cell once and says how it went."""
    _, plan = load_of(cell, number)
    run = running.stepped(plan)
    (written,) = running.folder.glob("steps-*.jsonl.gz")
    written.rename(log_of(running.folder, cell, number))
    drift = run.observed.facts["probe_drift"]
    words = f"{cell.max_concurrency} at once, {cell.random_input_len} in, {cell.random_output_len}"
    words += f" out: {len(run.steps)} steps, {run.observed.duration_s:.1f} s, drift {drift:.0%}"
    print(words, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
