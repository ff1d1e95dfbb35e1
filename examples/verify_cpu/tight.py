"""Runs engines with far too little KV cache: `tight.py OUT PYTHON`; step logs go to OUT/tight.

Nothing is predicted here: what matters is that the simulator makes the same steps.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from cells import spec

from dynosim.hardware_models.calibration.overheads import NONE
from dynosim.planning.exports.base import Candidate
from dynosim.question import read_question
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import resolve_for
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.verification.load.plan import WARM_UP, plan_load
from dynosim.verification.load.token_ids import TokenIds
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.target import TargetOptions
from dynosim.verification.targets.vllm_in_process import VllmInProcess

HERE = Path(__file__).resolve().parent
MODEL_LEN = 512
RATE = 3.0


@dataclass(frozen=True)
class Tight:
    """One engine and one load; the steps are at ``log`` in the outputs."""

    name: str
    deployment: Deployment
    spec: WorkloadSpec

    @property
    def load(self) -> Workload:
        """The requests."""
        return build_workload(self.spec)

    @property
    def plan(self) -> LoadPlan:
        """What is sent."""
        return plan_load(self.load, TokenIds(first=1000, end=31_000, seed=9), warmup=WARM_UP)

    def log(self, out: Path) -> Path:
        """Returns where its steps are."""
        return out / "tight" / self.name / "steps-1.jsonl.gz"


def all_tight(out: Path) -> Iterator[Tight]:
    """Yields every engine of tight.yaml, all at once and paced in turn."""
    served = read_question(str(out / "served.yaml"), {"calibration": NONE}).deployment
    written = yaml.safe_load((HERE / "tight.yaml").read_text())
    for number, fields in enumerate(written["engines"]):
        deployment = replace(served, max_model_len=MODEL_LEN, **fields)
        load = replace(spec(written["load"]), seed=number)
        if number % 2:
            load = replace(load, request_rate=RATE)
        yield Tight(f"tight-{number}", deployment, load)


def main(out: Path, python: str) -> None:
    """Runs them all."""
    shutil.rmtree(out / "tight", ignore_errors=True)
    for one in all_tight(out):
        engine, _ = resolve_for(one.deployment, one.load)
        candidate = Candidate(
            deployment=one.deployment, engine=engine, workload=one.spec, goodput_ms={}, seed=0
        )
        options = TargetOptions(
            folder=one.log(out).parent, command=(python,), arguments=("--dtype", "float32")
        )
        with VllmInProcess(options).run(candidate) as running:
            seen = running.measure(one.plan)
        print(f"{one.name}: {len(seen.requests)} requests in {seen.duration_s:.1f} s", flush=True)
    (out / "tight" / "done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
