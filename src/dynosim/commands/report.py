"""``dynosim report``: the HTML report and figures of a search, from its output folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dynosim.flags import Debug, Json, Quiet
from dynosim.search.outputs import REPORT_FILES, write_report
from dynosim.search.run_folder import RunFolder
from dynosim.search.saved_run import load_run
from dynosim.terminal import print_json, print_note

Run = Annotated[Path, Parameter(name="--run", metavar="DIR", help="Output folder of a search.")]


def report_command(
    run: Run, *, json: Json = False, quiet: Quiet = False, debug: Debug = False
) -> None:
    """Write report.html, frontier.png and frontier.svg of a search anew, from its output folder."""
    saved = load_run(run, has_estimates=False)
    with RunFolder(run, resume=True) as folder:
        write_report(folder, saved.result, saved.manifest, is_described=saved.is_described)
    if json:
        print_json({"files": [str(run / name) for name in REPORT_FILES]})
    else:
        print(run / "report.html")
    print_note("open it in a browser; it needs no network", quiet=quiet)
