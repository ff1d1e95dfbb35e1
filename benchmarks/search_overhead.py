"""Measures what a search costs beside its simulations, and what a second worker saves.

    python benchmarks/search_overhead.py --output docs/search.md

Every search has a process of its own and writes all its files. Processor time of simulations is
measured around each of them, in the process that also searches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dynosim.search.defaults import estimator_of, full_screen
from dynosim.search.evaluator import simulate_candidate
from dynosim.search.outcome import Outcome, Task
from dynosim.search.space import load_space
from dynosim.search.study import load_workload, search
from dynosim.sim.deployment import Deployment

HERE = Path(__file__).resolve().parent
SPACE = HERE / "spaces" / "dense.yaml"
SIZES = (100, 400)
BEGIN, END = "<!-- search_overhead: begin -->", "<!-- search_overhead: end -->"
_simulated_s = 0.0


def timed(deployment: Deployment, task: Task) -> Outcome:
    """Returns what a simulation finds, and adds up the processor seconds that it took."""
    global _simulated_s
    began_s = time.process_time()
    outcome = simulate_candidate(deployment, task)
    _simulated_s += time.process_time() - began_s
    return outcome


def run(n_trials: int, workers: int) -> dict[str, float]:
    """Returns wall seconds, processor seconds, and those of simulations (of one worker only)."""
    began_s = time.perf_counter()
    space = load_space(SPACE)
    load = load_workload(space)
    with tempfile.TemporaryDirectory() as folder:
        search(
            space,
            workload=load,
            n_trials=n_trials,
            workers=workers,
            output_dir=Path(folder) / "run",
            evaluator=timed if workers == 1 else simulate_candidate,
            screen=full_screen(space, load),
            estimator=estimator_of(space, load),
        )
    return {
        "cpu_s": time.process_time(),
        "simulated_s": _simulated_s,
        "wall_s": time.perf_counter() - began_s,
    }


def apart(n_trials: int, workers: int) -> dict[str, float]:
    """Returns :func:`run` of a process of its own."""
    command = [sys.executable, __file__, "--one", str(n_trials), str(workers)]
    found: dict[str, float] = json.loads(subprocess.check_output(command, text=True))
    return found


def table() -> list[str]:
    """Returns the rows of the report, with the least of three runs each."""
    lines = [
        f"`{SPACE.name}` of `benchmarks/spaces`, all files written:",
        "",
        "| simulations | processor s | of them simulations | the search's own | "
        "wall s, 1 worker | 2 workers | |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for size in SIZES:
        one = min((apart(size, 1) for _ in range(3)), key=lambda r: r["cpu_s"])
        two_s = min(apart(size, 2)["wall_s"] for _ in range(3))
        own = 1.0 - one["simulated_s"] / one["cpu_s"]
        lines.append(
            f"| {size} | {one['cpu_s']:.1f} | {one['simulated_s']:.1f} | {own:.0%} | "
            f"{one['wall_s']:.1f} | {two_s:.1f} | {one['wall_s'] / two_s:.2f}x |"
        )
    return lines


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(run(*given.one)))
        return
    text = "\n".join([BEGIN, "", *table(), "", END])
    if given.output is None:
        print(text)
        return
    page = given.output.read_text()
    before, _, rest = page.partition(BEGIN)
    given.output.write_text(before + text + rest.partition(END)[2])


if __name__ == "__main__":
    main()
