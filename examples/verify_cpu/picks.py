"""What was verified: the picks of OUT/search, their loads and what was observed of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dynosim.search.saved_run import load_run
from dynosim.verification.load.measured import read_observed
from dynosim.verification.load.plan import WARM_UP
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun
from dynosim.verification.prepared import Prepared, Selection, prepare
from dynosim.verification.schedule import Turn, rounds

TOP = 3
"""So many of the picks are on the frontier, the first ones."""


def prepared_run(out: Path) -> Prepared:
    """Returns the trials that ``dynosim verify`` picked; paths in the space are relative to OUT."""
    os.chdir(out)
    verified = json.loads((out / "search/verification/verification.json").read_text())
    trials = tuple(pick["trial"] for pick in verified["picks"])
    return prepare(load_run(out / "search"), Selection(trials=trials))


@dataclass(frozen=True)
class Observed:
    """One measurement, its load and where its steps were logged."""

    turn: Turn
    plan: LoadPlan
    run: ObservedRun
    steps: Path


def observed(out: Path, prepared: Prepared) -> Iterator[Observed]:
    """Yields every measurement that ``dynosim verify`` kept."""
    folder = out / "search" / "verification"
    repeats = len(list((folder / "runs").glob("*-repeat-*.json"))) // len(prepared.picks)
    for turn in rounds(prepared.picks, repeats):
        plan = prepared.plan(turn.pick, turn.repeat, WARM_UP)
        run = read_observed(folder / "runs" / f"{turn.name}.json")
        yield Observed(turn, plan, run, folder / "logs" / turn.name / "steps-1.jsonl.gz")
