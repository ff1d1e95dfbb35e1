"""Runs loads on the built-in engine: ``loads.py served.yaml loads.yaml DEVICE FOLDER``.

The steps of load N are FOLDER/steps-N.jsonl.gz; FOLDER/done is there when all are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from dynosim.hardware_models.calibration.overheads import NONE
from dynosim.planning.exports.base import Candidate
from dynosim.question import read_question
from dynosim.sim.simulate import resolve_for
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import ALIASES, WorkloadSpec
from dynosim.verification.load.plan import plan_load
from dynosim.verification.load.token_ids import TokenIds
from dynosim.verification.target import TargetOptions
from dynosim.verification.targets.builtin_torch import BuiltinTorch

WARM_UP = 2


def main(served: str, loads: str, device: str, folder: Path) -> None:
    """Measures all loads on one engine."""
    question = read_question(served, {"calibration": NONE})
    rows = yaml.safe_load(Path(loads).read_text(encoding="utf-8"))
    specs = [WorkloadSpec(**{ALIASES.get(k, k): v for k, v in row.items()}) for row in rows]
    engine, _ = resolve_for(question.deployment, build_workload(specs[0]))
    candidate = Candidate(
        deployment=question.deployment, engine=engine, workload=specs[0], goodput_ms={}, seed=0
    )
    ids = TokenIds.of_vocabulary(engine.model.vocab_size)
    with BuiltinTorch(TargetOptions(folder=folder, device=device)).run(candidate) as running:
        for row, spec in zip(rows, specs, strict=True):
            observed = running.measure(plan_load(build_workload(spec), ids, warmup=WARM_UP))
            print(f"{row}: {observed.duration_s:.2f} s", *observed.notes, sep="; ", flush=True)
    (folder / "done").touch()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
