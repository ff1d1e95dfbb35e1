"""Holds OUT against what is asked of it: `gates.py OUT` prints and writes OUT/gates.json.

Exit code 1 where a gate is missed; *inconclusive*, which is not missed, where repeats of the metric
differ by more than DRIFT.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from cells import ROUNDS, all_cells, load_of, log_of
from open_loop import REPEATS, open_load, plan_of
from picks import TOP, observed, prepared_run
from tight import all_tight

from dynosim.question import read_question
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.columns import Workload
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.prepared import Prepared
from dynosim.verification.step_parity import difference
from dynosim.verification.stepped.step_record import StepRecord, read_step_log

DRIFT = 0.15
CLOSED = {
    "output_throughput": 0.15,
    "mean_tpot_ms": 0.15,
    "median_tpot_ms": 0.15,
    "mean_ttft_ms": 0.20,
    "median_ttft_ms": 0.20,
}
OPEN = {"median_e2el_ms": 0.30, "median_ttft_ms": 0.30, "median_tpot_ms": 0.30}
"""Largest errors of medians over repeats, as shares."""


@dataclass(frozen=True)
class Gate:
    """One figure: predicted, the median measured, how far repeats differ, and the limit."""

    load: str
    trial: int
    metric: str
    predicted: float
    measured: float
    spread: float
    limit: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1.0

    @property
    def verdict(self) -> str:
        """Whether the error is within the limit; nothing is said where repeats differ too much."""
        if self.spread > DRIFT:
            return "inconclusive"
        return "passed" if abs(self.error) <= self.limit else "missed"


@dataclass
class Parity:
    """How many steps of how many runs were the same, and what was in them."""

    runs: int = 0
    equal: int = 0
    steps: int = 0
    preemptions: int = 0
    cached_tokens: int = 0

    def add(self, log: Path, deployment: Deployment, load: Workload, plan: LoadPlan) -> None:
        """Compares one run's steps with the simulator's on the same clock."""
        facts, steps = read_step_log(log)
        found = difference(deployment, load, plan, steps, int(facts["warmup_steps"]))
        if found is not None:
            print(f"{log}: {found}")
        self.runs += 1
        self.equal += found is None
        self.steps += len(steps)
        self.preemptions += sum(len(step.preempted) for step in steps)
        self.cached_tokens += cached(steps)


def cached(steps: Iterable[StepRecord]) -> int:
    """Returns the tokens that requests found in the prefix cache when they first entered."""
    seen: set[tuple[int, bool]] = set()
    tokens = 0
    for step in steps:
        for work in step.chunks:
            key = (work.request, True)
            if key not in seen:
                seen.add(key)
                tokens += work.context_tokens
    return tokens


def main(out: Path) -> int:
    """Prints and writes everything; returns the exit code."""
    prepared = prepared_run(out)
    gates = [*closed(out), *open_loop(out)]
    parity = compare_steps(out, prepared)
    verified = _json(out / "search/verification/verification.json")
    for gate in gates:
        print(
            f"{gate.load:6} trial {gate.trial:3} {gate.metric:18} predicted {gate.predicted:9.2f} "
            f"measured {gate.measured:9.2f} error {gate.error:+6.1%} repeats {gate.spread:5.1%} "
            f"limit {gate.limit:.0%} {gate.verdict}"
        )
    print(f"steps: {parity.equal} of {parity.runs} runs equal, {parity}")
    turned = [pair for order in verified["order"] for pair in order["turned"]]
    beyond = sum(order["pairs_beyond_noise"] for order in verified["order"])
    print(f"order: {beyond - len(turned)} of {beyond} pairs beyond noise kept")
    missed = [gate for gate in gates if gate.verdict == "missed"]
    is_fine = not missed and parity.equal == parity.runs and not turned
    document = {
        "about": about(),
        "gates": [asdict(g) | {"error": g.error, "verdict": g.verdict} for g in gates],
        "parity": asdict(parity),
        "pairs": {"beyond_noise": beyond, "turned": turned},
        "settings": {p.number: settings(p.trial.deployment) for p in prepared.picks},
        "is_passed": is_fine,
    }
    (out / "gates.json").write_text(json.dumps(document, indent=1) + "\n")
    print("passed" if is_fine else "missed")
    return 0 if is_fine else 1


def about() -> dict[str, Any]:
    """Returns when and on what this ran."""
    return {
        "date": datetime.now(tz=UTC).date().isoformat(),
        "python": platform.python_version(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
    }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def settings(deployment: Deployment) -> str:
    """Returns what the search varied, in words."""
    cache = "on" if deployment.enable_prefix_caching else "off"
    seqs, tokens = deployment.max_num_seqs, deployment.max_num_batched_tokens
    return f"{seqs}, {tokens}, {cache}, {deployment.long_prefill_token_threshold}"


def closed(out: Path) -> Iterator[Gate]:
    """Yields the figures of the closed loop, as `dynosim verify` found them."""
    for pick in _json(out / "search/verification/verification.json")["picks"]:
        rows = {row["metric"]: row for row in pick["metrics"]}
        for metric, limit in CLOSED.items():
            row = rows[metric]
            spread = row["repeat_spread"] or 0.0
            figures = (row["predicted"], row["measured"], spread, limit)
            yield Gate("closed", pick["trial"], metric, *figures)


def open_loop(out: Path) -> Iterator[Gate]:
    """Yields the latencies of the open loop."""
    for pick in _json(out / "open_loop.json")["picks"]:
        for metric, limit in OPEN.items():
            found = [run[metric] for run in pick["measured"]]
            middle = median(found)
            spread = (max(found) - min(found)) / middle
            yield Gate(
                "open", pick["trial"], metric, pick["predicted"][metric], middle, spread, limit
            )


def compare_steps(out: Path, prepared: Prepared) -> Parity:
    """Returns the parity of every run's steps: cells, picks, open loop, tight."""
    parity = Parity()
    served = read_question("served.yaml", {}).deployment
    for cell in all_cells():
        for number in range(ROUNDS):
            parity.add(log_of(out / "cells", cell, number), served, *load_of(cell, number))
    for one in observed(out, prepared):
        deployment = one.turn.pick.trial.deployment
        parity.add(one.steps, deployment, prepared.load, one.plan)
    load = open_load(prepared)
    for pick in prepared.picks[:TOP]:
        for repeat in range(1, REPEATS + 1):
            log = out / f"open_loop/trial-{pick.number}/steps-{repeat}.jsonl.gz"
            parity.add(log, pick.trial.deployment, load, plan_of(load, repeat))
    for tight in all_tight(out):
        parity.add(tight.log(out), tight.deployment, tight.load, tight.plan)
    return parity


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
