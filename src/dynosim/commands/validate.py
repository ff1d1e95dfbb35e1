"""``dynosim validate``: predictions against runs that were measured on real hardware."""

from __future__ import annotations

import contextlib
import gc
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dynosim.accuracy.errors import error_rows
from dynosim.accuracy.figure import title_of
from dynosim.accuracy.report import statistics_cells, write_report
from dynosim.accuracy.run import Report
from dynosim.accuracy.validation import Validation, validate
from dynosim.flags import Debug, Json, Quiet
from dynosim.hardware_models.errors import UserError
from dynosim.terminal import print_error, print_json, print_note, table

if TYPE_CHECKING:
    from rich.progress import Progress

INTERRUPTED = 130

Data = Annotated[
    Path | None,
    Parameter(
        metavar="DIR",
        help="Folder of measured sets; by default the one that `pip install 'dynosim[validate]'` "
        "brings.",
    ),
]
Sets = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        consume_multiple=True,
        negative=(),
        show_default=False,
        metavar="NAME...",
        help="Only these sets.",
    ),
]
Sample = Annotated[
    int | None,
    Parameter(metavar="INT", help="At most this many cases of each set, spread by chance."),
]
Jobs = Annotated[
    int | None, Parameter(metavar="INT", help="Processes that simulate; by default one a CPU.")
]
Output = Annotated[
    Path | None,
    Parameter(alias="-o", metavar="DIR", help="Write accuracy.md, its figures and cases.csv here."),
]


def validate_command(
    *,
    data: Data = None,
    set: Sets = (),
    sample: Sample = None,
    jobs: Jobs = None,
    output: Output = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Compare predictions with runs measured on real GPUs, and show the errors."""
    gc.enable()
    _check(sample=sample, jobs=jobs)
    if output is not None and output.exists() and not output.is_dir():
        raise UserError(f"{output} is a file", where="--output", hint="allowed: a folder's name")
    validation = None
    with contextlib.suppress(KeyboardInterrupt), Bar(quiet=quiet) as bar:
        validation = validate(
            data, sets=set, sample=sample, jobs=jobs or os.cpu_count() or 1, begin=bar.begin
        )
    if validation is None:
        # The workers' locks are the system's, and this process ends without looking back.
        gc.collect()
        print_error("interrupted: nothing was written")
        return INTERRUPTED
    if json:
        print_json(as_json(validation))
    else:
        print("\n".join(as_text(validation)))
    if output is not None:
        write_report(validation, output)
        print_note(f"written to {output}", quiet=quiet)
    return 0


def _check(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise UserError(f"found {value}", where=f"--{name}", hint="allowed: >= 1")


def as_text(validation: Validation) -> list[str]:
    """Returns one screen: errors by set, metric, GPU and backend, and what was left out."""
    found = validation.residuals
    rows = error_rows(found, lambda r: (r.set, title_of(r.quantity), "all", ""))
    rows += error_rows(found, lambda r: (r.set, title_of(r.quantity), r.half.replace("_", " "), ""))
    rows += error_rows(found, lambda r: (r.set, title_of(r.quantity), r.gpu, r.backend))
    header = ("set", "metric", "where", "backend", "n", "median", "p90", "bias", "within 25%")
    cells = [[*row.key, *statistics_cells(row)] for row in rows]
    lines = [table(header, cells, left=4)] if cells else ["No case could be simulated."]
    for measured in validation.sets:
        refused = validation.refused[measured.name].total()
        lines.append(
            f"{measured.name}: {len(measured.cases) - refused:,} cases simulated, {refused:,} "
            f"refused, {sum(measured.dropped.values()):,} rows left out"
        )
    return lines


def as_json(validation: Validation) -> dict[str, Any]:
    """Returns the errors by class, and what was left out, as plain values; errors are shares."""
    names = ("set", "quantity", "gpu", "backend", "model_class", "regime", "half")
    rows = error_rows(validation.residuals, lambda r: tuple(getattr(r, n) for n in names))
    classes = []
    for row in rows:
        statistics = asdict(row)
        classes.append({**dict(zip(names, statistics.pop("key"), strict=True)), **statistics})
    return {
        "sets": [
            {
                "set": measured.name,
                "cases": len(measured.cases),
                "refused": dict(validation.refused[measured.name]),
                "left_out": measured.dropped,
            }
            for measured in validation.sets
        ],
        "errors": classes,
        "peers": [asdict(peer) for peer in validation.peers],
    }


class Bar:
    """A progress bar with time left, on stderr; silent where that is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self._cases = self._done = 0
        self._bar: Progress = Progress(
            TextColumn("validating"),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )

    def begin(self, cases: int, requests: int) -> Report:
        """Shows what is to come; the bar goes by requests, which is what cases cost."""
        self._cases = cases
        task = self._bar.add_task(f"0/{cases} cases", total=requests)

        def report(done: int) -> None:
            self._done += 1
            text = f"{self._done}/{self._cases} cases"
            self._bar.update(task, advance=done, description=text)

        return report

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._bar.stop()
