"""``dynosim search``: from a space of deployments to its Pareto frontier."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from cyclopts import Parameter

from dynosim.flags import Debug, Json, Quiet
from dynosim.search import dry_run as plan_only
from dynosim.search import search
from dynosim.search.outputs import TableFormat
from dynosim.search.placement import ExecutorName
from dynosim.search.progress import Bar, Silent
from dynosim.search.render import print_result
from dynosim.search.result_document import result_document
from dynosim.search.study import settle
from dynosim.terminal import print_json, print_note

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
PIPE_COLUMNS = 200
"""Width of tables that no terminal shows: wide enough never to wrap a row."""

Space = Annotated[
    str, Parameter(name="--space", metavar="FILE", help="YAML file: which deployments to search.")
]
OutputDir = Annotated[
    Path | None,
    Parameter(
        alias="-o",
        metavar="DIR",
        help="Write report.html, frontier.csv, figures, all trials, the study and a manifest here.",
    ),
]
Trials = Annotated[
    int | None, Parameter(metavar="INT", help="Simulations to spend; by default the space's.")
]
Timeout = Annotated[
    float | None, Parameter(metavar="SECONDS", help="Stop after this time and keep what is done.")
]
Seed = Annotated[int | None, Parameter(metavar="INT", help="Seed; by default the space's.")]
Workers = Annotated[
    int | None, Parameter(metavar="INT", help="Processes that simulate; by default one a CPU.")
]
Where = Annotated[
    ExecutorName, Parameter(help="What simulates: processes of this machine, or a Dask cluster.")
]
Scheduler = Annotated[
    str | None,
    Parameter(
        metavar="ADDRESS",
        help="Dask scheduler to send candidates to; by default a cluster is started here.",
    ),
]
Storage = Annotated[
    str,
    Parameter(
        metavar="journal|URL",
        help="Keep the study in PostgreSQL too (postgresql://USER@HOST/DATABASE), where other "
        "hosts can watch it or go on with it; by default in a journal file of the output folder.",
    ),
]
Resume = Annotated[
    bool,
    Parameter(
        negative=(),
        show_default=False,
        help="Continue the run in the output folder where it stopped.",
    ),
]
Overwrite = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Replace the run in the output folder.")
]
DryRun = Annotated[
    bool,
    Parameter(
        negative=(), show_default=False, help="Say what would be searched and how long it may take."
    ),
]
Cache = Annotated[
    Path | None,
    Parameter(
        metavar="DIR", help="Keep outcomes here, and simulate nothing twice from search to search."
    ),
]
Replicates = Annotated[
    int,
    Parameter(
        metavar="INT",
        help="Draws of the workload on which to simulate the frontier and what is close to it.",
    ),
]
CandidateTimeout = Annotated[
    float | None,
    Parameter(metavar="SECONDS", help="Longest that one candidate may take; beyond it has failed."),
]
Format = Annotated[TableFormat, Parameter(help="Format of the table of all trials.")]


def search_command(
    space: Space,
    *,
    output_dir: OutputDir = None,
    n_trials: Trials = None,
    timeout: Timeout = None,
    seed: Seed = None,
    workers: Workers = None,
    executor: Where = "process",
    dask_scheduler: Scheduler = None,
    storage: Storage = "journal",
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    table_format: Format = "csv",
    cache: Cache = None,
    replicates: Replicates = 1,
    candidate_timeout: CandidateTimeout = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Search a space of deployments for the latency-versus-throughput Pareto frontier."""
    gc.enable()
    warnings.showwarning = partial(_note_warning, quiet=quiet)
    settled = settle(space, n_trials=n_trials, seed=seed)
    if dry_run:
        rehearsed, count = plan_only(settled), workers or os.cpu_count() or 1
        if json:
            print_json(rehearsed.document(count))
        else:
            print("\n".join(rehearsed.lines(count)))
        return 0
    result = search(
        settled,
        output_dir=output_dir,
        timeout_s=timeout,
        workers=workers,
        executor=executor,
        dask_scheduler=dask_scheduler,
        storage=storage,
        resume=resume,
        overwrite=overwrite,
        table_format=table_format,
        cache_dir=cache,
        replicates=replicates,
        candidate_timeout_s=candidate_timeout,
        progress=Silent() if quiet else Bar(),
    )
    if json:
        print_json(result_document(result))
    else:
        print_result(result, _console())
    if output_dir is None:
        print_note("nothing was written: give --output-dir to keep the results", quiet=quiet)
    else:
        print_note(f"written to {output_dir}", quiet=quiet)
    return INTERRUPTED if result.ending == "interrupted" else 0


def _note_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
    *,
    quiet: bool = False,
) -> None:
    """Prints a warning as a note: what was mended, without the line of code that says so."""
    print_note(f"warning: {message}", quiet=quiet)


def _console() -> Console:
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS, color_system=None)
