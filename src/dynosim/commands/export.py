"""``dynosim export``: launch files and benchmark commands of a candidate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dynosim.commands.simulate import File, Goodput
from dynosim.flags import Debug, Json, Quiet, takes_fields_of
from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Files
from dynosim.planning.exports.export import export
from dynosim.question import read_question
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.terminal import print_json, print_note

To = Annotated[
    str,
    Parameter(
        name="--to",
        metavar="TARGET",
        help="vllm, sglang, trtllm, nim, dynamo or k8s to launch it; aiperf, guidellm, "
        "inference-perf or vllm-bench to send it its workload.",
    ),
]
Output = Annotated[
    Path | None,
    Parameter(alias="-o", metavar="DIR", help="Write the files here instead of printing them."),
]
EXECUTABLE = 0o755


@takes_fields_of(Deployment=Deployment, Workload=WorkloadSpec)
def export_command(
    file: File = None,
    /,
    *,
    to: To,
    goodput: Goodput = (),
    output: Output = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
    **flags: Any,
) -> None:
    """Write launch files or benchmark commands in the vendor's spelling.

    What the target's version has no word for is refused, never left out.
    """
    if output is not None and output.exists() and not output.is_dir():
        raise UserError(f"{output} is a file", where="--output", hint="allowed: a folder's name")
    question = read_question(file, flags, goodput)
    files = export(
        question.deployment,
        to,
        workload=question.workload,
        goodput_ms=question.goodput_ms,
        seed=question.seed,
    )
    if output is not None:
        _write(files, output)
    if json:
        print_json({"target": to, "files": dict(files), "written_to": output and str(output)})
    elif output is None:
        print(as_text(files), end="")
    if output is not None:
        print_note(f"written to {output}: {', '.join(files)}", quiet=quiet)


def as_text(files: Files) -> str:
    """Returns the text of a single file, or of several below their names."""
    if len(files) == 1:
        return "".join(files.values())
    return "\n".join(f"# --- {name}\n{text}" for name, text in files.items())


def _write(files: Files, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        if name.endswith(".sh"):
            path.chmod(EXECUTABLE)
