"""Measures how much of the true frontier a search finds with a few simulations, beside others.

    python benchmarks/frontier_quality.py --cache FOLDER --output docs/search.md

Every space of ``benchmarks/spaces`` is simulated as a whole once (minutes; ``--cache`` keeps it),
then searched by each method with several seeds. With ``--output`` the page's generated part is
replaced.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dynosim.search.defaults import estimator_of, full_screen
from dynosim.search.executor import SerialExecutor
from dynosim.search.owner import Owner
from dynosim.search.plan import plan_search
from dynosim.search.proposer import Proposer, TpeProposer
from dynosim.search.screened import ScreenedProposer
from dynosim.search.space import load_space
from dynosim.search.study import load_workload, make_task
from dynosim.search.trial import Trial
from frontier_truth import Truth, find_truth, request_seconds
from rivals import CoordinateDescent, GeneticSearch, RandomSearch

SPACES = Path(__file__).resolve().parent / "spaces"
BUDGETS = (0.01, 0.02, 0.03, 0.05)
"""Shares of what the whole space costs, in simulations and in request-seconds, whichever is
spent first."""

BEGIN, END = "<!-- frontier_quality: begin -->", "<!-- frontier_quality: end -->"

Method = Callable[[int], Iterator[Trial]]
"""Yields simulated trials of a search with a seed, in order."""


@dataclass(frozen=True)
class Curve:
    """One method's shares of the true hypervolume, by seed; a column a budget."""

    name: str
    shares: Sequence[Sequence[float]]

    def median(self, budget: int) -> float:
        """Returns the median over seeds at BUDGETS[budget]."""
        return statistics.median(row[budget] for row in self.shares)

    def worst(self) -> float:
        """Returns the worst seed at the largest budget."""
        return min(row[-1] for row in self.shares)


def own(truth: Truth, make: Callable[[int], Proposer]) -> Method:
    """Returns a method that runs as ``dynosim search`` does, by generations."""
    space = replace(truth.space, n_trials=_most_simulations(truth))
    load = load_workload(space)
    screen = full_screen(space, load)

    def method(seed: int) -> Iterator[Trial]:
        task = make_task(space, load)
        owner = Owner(
            space=space,
            proposer=make(seed),
            screen=screen,
            executor=SerialExecutor(truth.outcome, task),
        )
        owner.run()
        return (trial for trial in owner.ended if trial.is_simulated)

    return method


def rival(truth: Truth, make: Callable[[int], Proposer]) -> Method:
    """Returns a method that is told of every trial before it proposes the next."""

    def method(seed: int) -> Iterator[Trial]:
        proposer, seen = make(seed), set[int]()
        while (index := proposer.propose()) is not None:
            trial = truth.trial(index)
            proposer.tell(index, trial)
            # Combinations that are one candidate cost one simulation.
            if trial.is_simulated and trial.number not in seen:
                seen.add(trial.number)
                yield trial

    return method


def methods(truth: Truth) -> dict[str, Method]:
    """Returns every method by its name in the report."""
    space = truth.space
    load = load_workload(space)
    plan = plan_search(
        replace(space, n_trials=1), full_screen(space, load), estimator_of(space, load)
    )
    found = plan.screening
    assert found is not None

    def screened(seed: int) -> Proposer:
        return ScreenedProposer(
            space.grid, found.candidates, found.losses, found.margins, space.objectives, seed
        )

    return {
        "dynosim": own(truth, screened),
        "TPE": own(
            truth, lambda seed: TpeProposer(space.grid, space.objectives, seed, space.normal)
        ),
        "NSGA-II": rival(truth, lambda seed: GeneticSearch(space, seed)),
        "coordinate descent": rival(truth, lambda seed: CoordinateDescent(space, seed)),
        "random": rival(truth, lambda seed: RandomSearch(space, seed)),
    }


def _most_simulations(truth: Truth) -> int:
    return int(BUDGETS[-1] * len(truth.simulated))


def shares(truth: Truth, trials: Iterator[Trial]) -> list[float]:
    """Returns the share of the true hypervolume at each budget."""
    spent_s, done = 0.0, list[Trial]()
    found = []
    budgets = list(BUDGETS)
    for trial in trials:
        spent_s += request_seconds(trial)
        spent = max(spent_s / truth.request_s, (len(done) + 1) / len(truth.simulated))
        while budgets and spent > budgets[0]:
            found.append(truth.share(done))
            budgets.pop(0)
        if not budgets:
            return found
        done.append(trial)
    return found + [truth.share(done)] * len(budgets)


def section(path: Path, cache: Path, seeds: int, workers: int) -> str:
    """Returns the Markdown of one space."""
    truth = find_truth(load_space(path), cache, workers)
    space = truth.space
    curves = [
        Curve(name, [shares(truth, method(seed)) for seed in range(seeds)])
        for name, method in methods(truth).items()
    ]
    title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").rstrip(".")
    feasible = sum(t.is_feasible for t in truth.trials)
    objectives = ", ".join(f"{o.direction} {o.metric}" for o in space.objectives)
    lines = [
        f"### `{path.name}`: {title}",
        "",
        f"{space.size:,} candidates, {len(truth.simulated):,} can run ({feasible:,} feasible; "
        f"{truth.request_s:,.0f} request-seconds); {objectives}.",
        "",
        f"| method | {' | '.join(f'{b:.0%}' for b in BUDGETS)} | worst at {BUDGETS[-1]:.0%} |",
        f"|---|{'---:|' * (len(BUDGETS) + 1)}",
    ]
    for curve in curves:
        medians = " | ".join(f"{curve.median(i):.2%}" for i in range(len(BUDGETS)))
        lines.append(f"| {curve.name} | {medians} | {curve.worst():.2%} |")
    return "\n".join(lines)


def write(page: Path, text: str) -> None:
    """Replaces the generated part of ``page``."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Measures all spaces and prints or writes the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, required=True, help="folder of simulated outcomes")
    parser.add_argument("--space", type=Path, action="append", help="YAML (default: all of ours)")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path, help="a page to write the tables into")
    args = parser.parse_args()
    paths = args.space or sorted(SPACES.glob("*.yaml"))
    sections = [section(path, args.cache, args.seeds, args.workers) for path in paths]
    text = "\n\n".join(sections)
    if args.output:
        write(args.output, text)
    print(text)


if __name__ == "__main__":
    main()
