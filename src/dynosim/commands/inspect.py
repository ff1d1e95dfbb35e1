"""``dynosim inspect``: what decided a search, and why a trial stands where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dynosim.flags import Debug, Json, Quiet
from dynosim.search.explanation import explain_trial
from dynosim.search.render import print_result
from dynosim.search.result_document import result_document, trial_document
from dynosim.search.saved_run import load_run
from dynosim.terminal import print_json

Run = Annotated[Path, Parameter(name="--run", metavar="DIR", help="Output folder of a search.")]
TrialNumber = Annotated[
    int | None,
    Parameter(
        metavar="INT",
        help="Explain this trial: what dominates it, and what one changed field would do.",
    ),
]


def inspect_command(
    run: Run,
    *,
    trial: TrialNumber = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Explain a search's frontier, or one of its trials, from the output folder."""
    saved = load_run(run)
    if json:
        result = saved.result
        print_json(result_document(result) if trial is None else trial_document(result, trial))
        return 0
    if trial is not None:
        print("\n".join(explain_trial(saved.result, trial, saved.screen)))
        return 0
    print_result(saved.result)
    return 0
