"""``dynosim calibrate steps``: kernel tables and overheads, from an engine's own steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dynosim.flags import Debug, Json, Quiet
from dynosim.hardware_models.calibration.overheads import NONE
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.question import read_question
from dynosim.terminal import print_json, print_note, table
from dynosim.verification.fitted_tables import CARD, OVERHEADS, write_fitted
from dynosim.verification.step_fit import Cells, StepFit, fit_steps
from dynosim.verification.stepped.step_record import StepRecord, read_step_log

Logs = Annotated[
    tuple[Path, ...],
    Parameter(
        name="--from",
        consume_multiple=True,
        negative=(),
        metavar="LOG...",
        help="Step logs of one engine under several loads, as the targets vllm-in-process and "
        "builtin-torch leave them; logs of one load have one name up to the first dot.",
    ),
]
DeploymentFile = Annotated[
    Path,
    Parameter(
        name="--deployment",
        metavar="FILE",
        help="YAML file of what ran those steps, as for `dynosim simulate`, with kernel tables of "
        "its own (`kernel_tables`, or a card that names them).",
    ),
]
Output = Annotated[
    Path, Parameter(alias="-o", metavar="DIR", help="Folder for the fitted tables and overheads.")
]


def calibrate_steps_command(
    *,
    logs: Logs,
    deployment: DeploymentFile,
    output: Output = Path("fitted"),
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit kernel tables and host overheads to the steps that an engine ran.

    Tables measured alone are scaled to what the engine's steps take; what remains is the host's.
    """
    if output.exists() and not output.is_dir():
        raise UserError(f"{output} is a file", where="--output", hint="allowed: a folder's name")
    question = read_question(str(deployment), {"calibration": NONE})
    engine = resolve_engine(question.deployment)
    cells, about = _read(logs)
    fit = fit_steps(engine, cells)
    write_fitted(engine, fit, about, output)
    if json:
        print_json({**asdict(fit), "written_to": str(output)})
    else:
        print("\n".join(as_text(fit)))
    use = f"--calibration {output / OVERHEADS}"
    card = output / CARD
    tables = f"--gpu {card}" if card.is_file() else f"--kernel-tables {output}"
    print_note(f"written to {output}; use it with {tables} {use}", quiet=quiet)


def _read(logs: Sequence[Path]) -> tuple[Cells, str]:
    """Returns the steps by load, which names a file up to its first dot, and whose they are."""
    cells: dict[str, list[StepRecord]] = {}
    names = set()
    for path in logs:
        facts, steps = read_step_log(path)
        first = int(facts.get("warmup_steps", 0))
        cells.setdefault(path.name.split(".", 1)[0], []).extend(steps[first:])
        names.add(" ".join(f"{k} {facts[k]}" for k in ("vllm", "torch") if k in facts))
    if len(names) > 1:
        hint = ", ".join(sorted(names))
        raise UserError("steps of more than one engine", where="--from", hint=hint)
    return cells, names.pop() if names else ""


def as_text(fit: StepFit) -> list[str]:
    """Returns what was found, and how far off a fit without a load is for that load."""
    rows = [
        ["a step", f"{fit.host_step_s * 1e3:.3f} ms"],
        ["a sampling sequence", f"{fit.host_per_sequence_s * 1e3:.3f} ms"],
        ["products and elementwise", f"x {fit.linear_factor:.3f}"],
        ["attention", f"x {fit.attention_factor:.3f}"],
    ]
    errors = [[name, f"{error:+.1%}"] for name, error in fit.held_out.items()]
    return [
        f"{fit.steps} steps of {len(fit.held_out)} loads",
        "",
        table(("takes", "fitted"), rows),
        "",
        table(("load, left out", "busy time"), errors),
        "",
        f"Median error on loads left out: {fit.held_out_error:.1%}",
    ]
