"""The stages of ``verify_gpu.sh``, each a command of its own within what is left of the time.

A stage that was finished is not repeated. One that is not finished in time is ended, and with it
the run, but for the rounds of the verification: those that were measured count.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
MOST_ROUNDS = 3
ENDING_S = 60.0
"""Time kept back from the rounds for scoring the frontier anew, and for packing."""


@dataclass(frozen=True)
class Stage:
    """A command, the file that says it was finished, and the most seconds it may take."""

    name: str
    argv: list[str]
    result: Path
    most_s: float


class Run:
    """Commands within a budget, and what became of each."""

    def __init__(
        self, out: Path, budget_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.out = out
        self._now = now
        self._end_s = now() + budget_s
        self.done: list[dict[str, Any]] = []

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return max(self._end_s - self._now(), 0.0)

    def stage(self, stage: Stage) -> bool:
        """Runs a stage; returns whether its result is there."""
        if stage.result.exists():
            self._note(stage.name, "was there", 0.0)
            return True
        status, seconds = self.command(stage.argv, min(stage.most_s, self.left_s))
        self._note(stage.name, status, seconds)
        return stage.result.exists()

    def command(self, argv: list[str], most_s: float) -> tuple[str, float]:
        """Runs a command; returns what became of it and the seconds it took."""
        started = self._now()
        print("==", " ".join(argv), flush=True)
        try:
            code = subprocess.run(argv, cwd=self.out, timeout=most_s, check=False).returncode
            status = "done" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            status = "out of time"
        return status, self._now() - started

    def _note(self, name: str, status: str, seconds: float) -> None:
        self.done.append({"stage": name, "status": status, "seconds": round(seconds, 1)})
        self.write({})

    def write(self, verdict: dict[str, Any]) -> None:
        """Writes what was reached so far."""
        text = json.dumps({"stages": self.done, **verdict}, indent=2)
        (self.out / "summary.json").write_text(text + "\n", encoding="utf-8")

    def rounds(self, argv: list[str]) -> None:
        """Measures one round of all picks after the other, as far as the time goes.

        None is begun that would not end by the pace of the one before.
        """
        slowest, measured = 0.0, 0
        for number in range(1, MOST_ROUNDS + 1):
            left_s = self.left_s - ENDING_S
            if left_s < slowest:
                break
            words = [*argv, "--resume", "--repeats", str(number), "--rescore", "none"]
            status, seconds = self.command(words, left_s)
            self._note(f"verify, round {number}", status, seconds)
            if status != "done":
                break
            slowest, measured = max(slowest, seconds), number
        words = [*argv, "--resume", "--repeats", str(max(measured, 1))]
        self._note("conclusion", *self.command(words, self.left_s))


def main() -> None:
    """Runs all stages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--setup", type=Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget-s", type=float, required=True)
    options = parser.parse_args()
    out: Path = options.out.resolve()
    for path in sorted(options.setup.iterdir()):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        if not (out / path.name).exists():
            copy(path, out / path.name)
    (out / "fitted").mkdir(exist_ok=True)
    run = Run(out, options.budget_s)
    setup = yaml.safe_load((out / "setup.yaml").read_text(encoding="utf-8"))
    if all(run.stage(stage) for stage in stages(out, options.device, setup)):
        run.rounds(verify(options.device, setup))
    run.write(verdict(out))


def stages(out: Path, device: str, setup: dict[str, Any]) -> Iterator[Stage]:
    """Yields the stages before the verification."""
    most = setup["most_s"]
    measure = ["measure", "--device", device, "--model", setup["model"], "--grid", setup["grid"]]
    measure += ["--dtype", setup["dtype"], "--budget-s", str(most["kernels"])]
    yield Stage(
        "kernels",
        dynosim("calibrate", *measure, "--out", "kernels"),
        out / "kernels/tables.yaml",
        1.3 * most["kernels"],
    )
    loads = [sys.executable, str(HERE / "loads.py"), "served.yaml", "loads.yaml", device, "steps"]
    yield Stage("steps", loads, out / "steps/done", most["steps"])
    fit = ["--deployment", "served.yaml", "--output", "fitted", "--from"]
    logs = [f"steps/steps-{n + 1}.jsonl.gz" for n in range(num_loads(out))]
    yield Stage(
        "fit",
        dynosim("calibrate", "steps", *fit, *logs),
        out / "fitted/overheads.yaml",
        most["fit"],
    )
    yield Stage(
        "search",
        dynosim("search", "--space", "space.yaml", "--output-dir", "search"),
        out / "search/frontier.csv",
        most["search"],
    )


def num_loads(out: Path) -> int:
    """Returns how many loads the steps are of."""
    return len(yaml.safe_load((out / "loads.yaml").read_text(encoding="utf-8")))


def verify(device: str, setup: dict[str, Any]) -> list[str]:
    """Returns the command that measures the picks, but for its repeats."""
    picks = ["--top", str(setup["top"]), "--dominated", str(setup["dominated"])]
    return dynosim("verify", "search", "--target", "builtin-torch", "--device", device, *picks)


def dynosim(*words: str) -> list[str]:
    """Returns a command of dynosim."""
    return [sys.executable, "-m", "dynosim", *words]


def verdict(out: Path) -> dict[str, Any]:
    """Returns what the verification concluded, nothing where it did not get so far."""
    path = out / "search/verification/verification.json"
    return {"verification": json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}


if __name__ == "__main__":
    main()
