"""Measures the search of a space of millions of combinations, beside a long one and TPE.

    python benchmarks/large_space.py --output docs/search.md

Each search has a process of its own. The reference is the frontier of all of them together and of
a search with more of the space looked at and five times the simulations.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import moocore
import numpy as np

import dynosim.search.plan as plan
from dynosim.search.evaluator import simulate_candidate
from dynosim.search.frontier import losses
from dynosim.search.space import SearchSpace, load_space
from dynosim.search.study import search

SPACE = Path(__file__).resolve().with_name("large_space.yaml")
BEGIN, END = "<!-- large_space: begin -->", "<!-- large_space: end -->"
REFERENCE_SAMPLE, REFERENCE_FACTOR = 150_000, 5
BEYOND = 0.1
"""How far the hypervolume's reference lies beyond the worst of the frontier, of its extent."""


@dataclass(frozen=True)
class Run:
    """One search: its frontier's losses, and what it took."""

    points: np.ndarray
    trials: int
    cpu_s: float
    peak_mib: int


def run(method: str, seed: int) -> Run:
    """Returns one search of the space; the workload is the same for every seed."""
    space: SearchSpace = load_space(SPACE)
    count = space.n_trials
    if method == "reference":
        plan.SAMPLE, count = REFERENCE_SAMPLE, REFERENCE_FACTOR * count
    evaluator = simulate_candidate if method == "TPE" else None
    begin_s = time.process_time()
    result = search(space, n_trials=count, seed=seed, workers=1, evaluator=evaluator)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    points = losses(result.frontier, space.objectives)
    return Run(points, len(result.trials), time.process_time() - begin_s, peak_mib)


def alone(method: str, seed: int) -> Run:
    """Returns a search in a process of its own, whose peak of memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run, method, seed).result()


def shares(runs: Sequence[Run], known: Sequence[Run]) -> list[float]:
    """Returns the share of the hypervolume of ``known`` that each run found."""
    every = np.vstack([r.points for r in known])
    front = every[moocore.is_nondominated(every)]
    ideal, nadir = front.min(axis=0), front.max(axis=0)
    reference = np.full(front.shape[1], 1.0 + BEYOND)

    def volume(points: np.ndarray) -> float:
        scaled = (points - ideal) / (nadir - ideal)
        inside = scaled[(scaled < reference).all(axis=1)]
        return float(moocore.hypervolume(inside, ref=reference)) if len(inside) else 0.0

    return [volume(r.points) / volume(front) for r in runs]


def section(seeds: int) -> str:
    """Returns the Markdown."""
    space = load_space(SPACE)
    reference = alone("reference", 0)
    found = {m: [alone(m, seed) for seed in range(seeds)] for m in ("dynosim", "TPE")}
    known = [reference, *(r for runs in found.values() for r in runs)]
    lines = [
        f"{space.size:,} combinations, {space.n_trials} simulations, {seeds} seeds.",
        "",
        "| method | median | worst | CPU s | peak MiB |",
        "|---|---:|---:|---:|---:|",
    ]
    for method, runs in found.items():
        own = shares(runs, known)
        cpu = statistics.median(r.cpu_s for r in runs)
        peak = max(r.peak_mib for r in runs)
        lines.append(
            f"| {method} | {statistics.median(own):.2%} | {min(own):.2%} | {cpu:.0f} | {peak:,} |"
        )
    whole = shares([reference], known)[0]
    lines.append(
        f"| dynosim, {REFERENCE_SAMPLE:,} looked at, {reference.trials:,} simulations "
        f"| {whole:.2%} | | {reference.cpu_s:.0f} | {reference.peak_mib:,} |"
    )
    return "\n".join(lines)


def main() -> None:
    """Measures, then prints or writes the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="a page to write the table into")
    args = parser.parse_args()
    text = section(args.seeds)
    if args.output:
        before, _, rest = args.output.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        args.output.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
