"""``dynosim inspect``: what decided a search, and why a trial stands where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dynosim.flags import Debug
from dynosim.search.explanation import explain_trial
from dynosim.search.render import print_result
from dynosim.search.saved_run import load_run

Run = Annotated[Path, Parameter(name="--run", metavar="DIR", help="Output folder of a search.")]
TrialNumber = Annotated[
    int | None,
    Parameter(
        metavar="INT",
        help="Explain this trial: what dominates it, and what one changed field would do.",
    ),
]


def inspect_command(run: Run, *, trial: TrialNumber = None, debug: Debug = False) -> int:
    """Explain a search's frontier, or one of its trials, from the output folder."""
    saved = load_run(run)
    if trial is not None:
        print("\n".join(explain_trial(saved.result, trial, saved.screen)))
        return 0
    print_result(saved.result)
    return 0
