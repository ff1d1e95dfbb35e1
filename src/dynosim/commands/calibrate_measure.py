"""``dynosim calibrate measure``: kernel tables of the device at hand."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.types import NonNegativeFloat, PositiveInt

from dynosim.flags import Debug, Json, Quiet
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.case import Case
from dynosim.hardware_models.measure.compare import compare
from dynosim.hardware_models.measure.grid import plan, read_grid
from dynosim.hardware_models.measure.ledger import Ledger
from dynosim.hardware_models.measure.model_grid import for_model
from dynosim.hardware_models.measure.session import Limits, Progress, Summary, measure
from dynosim.hardware_models.measure.torch_bench import TorchBench
from dynosim.hardware_models.measure.write import (
    CARD,
    LEDGER,
    known_gpu,
    manifest,
    write_tables,
)
from dynosim.terminal import print_json, print_note, table

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells give it."""

PROBE_MOVED = 1.05
"""A probe whose slowest time is beyond this multiple of its fastest is worth a warning."""

Dtype = Literal["bfloat16", "float16", "float32", "fp8"]

Out = Annotated[
    Path | None,
    Parameter(
        metavar="DIR",
        help="Folder of the tables and of the ledger that resumes a run that was broken off "
        "[default: measured-DEVICE].",
    ),
]
Device = Annotated[str, Parameter(metavar="DEVICE", help="auto, cpu, cuda or cuda:N.")]
GridName = Annotated[
    str | None,
    Parameter(
        name="--grid",
        metavar="NAME|FILE",
        help="Shapes: small, standard or a YAML file [default: standard on a GPU, small on a CPU].",
    ),
]
Model = Annotated[
    str | None,
    Parameter(metavar="MODEL", help="Measure the shapes of this model instead of the grid's own."),
]
Parallel = Annotated[
    tuple[PositiveInt, ...],
    Parameter(
        name="--tensor-parallel-size",
        alias="-tp",
        consume_multiple=True,
        negative=(),
        metavar="INT...",
        help="Tensor-parallel sizes of that model.",
    ),
]
Ops = Annotated[
    tuple[str, ...],
    Parameter(
        consume_multiple=True,
        negative=(),
        show_default=False,
        metavar="FAMILY...",
        help="Only these families of the grid.",
    ),
]
Dtypes = Annotated[
    tuple[Dtype, ...],
    Parameter(
        name="--dtype",
        consume_multiple=True,
        negative=(),
        show_default=False,
        help="In place of the grid's dtypes; fp8 is for matrix products only.",
    ),
]
Budget = Annotated[
    NonNegativeFloat,
    Parameter(
        name="--budget-s",
        metavar="NUMBER",
        help="Seconds to measure for; what is not reached is said, and measured by the next run. "
        "0 measures nothing (and needs no PyTorch): it writes the tables of the ledger again.",
    ),
]
Graphs = Annotated[
    bool,
    Parameter(
        name="--cuda-graphs",
        help="Replay CUDA graphs, as engines do; without, kernels are launched one by one.",
    ),
]
Threads = Annotated[PositiveInt, Parameter(metavar="INT", help="Threads of a CPU's kernels.")]
Engine = Annotated[
    str | None,
    Parameter(
        metavar="NAME",
        help="Measure this engine's own kernels, where it is installed beside dynosim and has some "
        "(vllm on a CPU); else PyTorch's.",
    ),
]
Compare = Annotated[
    bool,
    Parameter(
        name="--compare",
        negative=(),
        show_default=False,
        help="Compare with the shipped tables of this GPU.",
    ),
]


def calibrate_measure_command(
    *,
    out: Out = None,
    device: Device = "auto",
    grid_name: GridName = None,
    model: Model = None,
    parallel: Parallel = (1,),
    ops: Ops = (),
    dtypes: Dtypes = (),
    budget_s: Budget = 420.0,
    cuda_graphs: Graphs = True,
    threads: Threads = 1,
    engine: Engine = None,
    with_shipped: Compare = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Measure the ops of a serving engine on the GPU (or CPU) at hand.

    Each finished shape is kept at once: a run that is killed goes on where it was. The folder is
    for --kernel-tables of the other commands; docs/kernel-tables.md tells its format.
    """
    if budget_s == 0.0:
        ledger, unreached, interrupted = _finished(out), 0, False
    else:
        bench = TorchBench(
            device, graphs=cuda_graphs, threads=threads, wide=_wide(dtypes), engine=engine
        )
        try:
            grid = read_grid(grid_name or ("standard" if bench.lab.on_gpu else "small"))
            cases = plan(
                for_model(grid, model, parallel) if model else grid, ops=ops, dtypes=dtypes
            )
            folder = out or Path(f"measured-{_slug(bench.origin()['device'])}")
            ledger, summary = _measured(cases, bench, folder, budget_s, quiet)
        finally:
            bench.close()
        unreached, interrupted = summary.unreached, summary.interrupted
        print_note(_ending(summary), quiet=quiet)
    write_tables(ledger, ledger.path.parent, unreached)
    if json:
        print_json(_as_json(ledger, unreached, with_shipped=with_shipped))
        return INTERRUPTED if interrupted else 0
    print("\n".join(_report(ledger, unreached)))
    if with_shipped:
        print("\n" + _comparison(ledger))
    return INTERRUPTED if interrupted else 0


def _finished(out: Path | None) -> Ledger:
    if out is None or not (out / LEDGER).is_file():
        raise UserError(
            "--budget-s 0 measures nothing, and there is no ledger",
            where="--out",
            hint=f"allowed: a folder with a {LEDGER}",
        )
    return Ledger.read(out / LEDGER)


def _measured(
    cases: list[Case], bench: TorchBench, folder: Path, budget_s: float, quiet: bool
) -> tuple[Ledger, Summary]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}", where="--out") from error
    ledger = Ledger.open(folder / LEDGER, bench.origin())
    with _watching(quiet) as watch:
        return ledger, measure(cases, bench, ledger, Limits(budget_s=budget_s), watch=watch)


def _wide(dtypes: tuple[Dtype, ...]) -> str:
    """Returns the dtype of activations: the first asked for that is not 8 bits wide."""
    return next((dtype for dtype in dtypes if dtype != "fp8"), "bfloat16")


def _slug(device: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


@contextmanager
def _watching(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """Yields what shows a bar with the time left, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[left]} {task.description}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, left="")

        def watch(progress: Progress) -> None:
            left = f"{progress.left_s:.0f} s left"
            now = progress.now.label[:60]
            bar.update(
                task, total=progress.total, completed=progress.done, description=now, left=left
            )

        yield watch


def _ending(summary: Summary) -> str:
    ending = "interrupted: " if summary.interrupted else ""
    words = [f"{ending}{summary.tried} shapes tried in {summary.spent_s:.0f} s"]
    if summary.resumed:
        words.append(f"{summary.resumed} were in the ledger")
    if summary.skipped:
        words.append(f"{summary.skipped} cannot be measured here")
    if summary.unreached:
        words.append(f"{summary.unreached} not reached: run the command again for those")
    return "; ".join(words)


def _report(ledger: Ledger, unreached: int) -> list[str]:
    found = manifest(ledger, unreached)
    header = ("family", "rows", "± median", "± p90", "kernels")
    rows = [
        [
            family,
            str(quality["rows"]),
            f"{quality['spread_median']:.1%}",
            f"{quality['spread_p90']:.1%}",
            ", ".join(f"{name} {n}" for name, n in quality["kernels"].items()),
        ]
        for family, quality in found["families"].items()
    ]
    lines = [f"{ledger.origin['device']}, torch {ledger.origin['torch']}", "", table(header, rows)]
    lines += ["", *(_skip(skip) for skip in found["skipped"])]
    if unreached:
        lines.append(f"Not reached within the budget: {unreached} shapes")
    moved = found["probe"].get("slowest_over_fastest", 1.0)
    if moved > PROBE_MOVED:
        lines.append(f"Warning: one shape took {moved:.2f} times as long at one time as at another")
    folder = ledger.path.parent
    gpu = known_gpu(ledger.origin)
    use = f"--gpu {gpu} --kernel-tables {folder}" if gpu else f"--gpu {folder / CARD}"
    if gpu or (folder / CARD).is_file():
        return [*lines, f"Use them: dynosim simulate {use} ..."]
    return [*lines, "No card of this device yet: that needs a matrix product and a copy"]


def _as_json(ledger: Ledger, unreached: int, *, with_shipped: bool) -> dict[str, Any]:
    """Returns the manifest, where it lies, and the ratios if asked for (none: no tables)."""
    answer = manifest(ledger, unreached) | {"written_to": str(ledger.path.parent)}
    if with_shipped:
        try:
            answer["measured_over_shipped"] = [asdict(ratio) for ratio in compare(ledger)]
        except UserError as error:
            answer |= {"measured_over_shipped": [], "reason": error.message}
    return answer


def _skip(skip: dict[str, Any]) -> str:
    return f"Not measured: {skip['shapes']} of {skip['family']}, {skip['reason']}"


def _comparison(ledger: Ledger) -> str:
    """Returns the ratios as a table; without shipped tables, that (the tables are written)."""
    try:
        ratios = compare(ledger)
    except UserError as error:
        return f"Nothing to compare with: {error.message}"
    header = ("measured / shipped", "dtype", "backend", "shapes", "median", "p10", "p90")
    rows = [
        [
            *(r.family, r.dtype, r.backend, str(r.shapes)),
            *(f"{value:.2f}" for value in (r.median, r.p10, r.p90)),
        ]
        for r in ratios
    ]
    return table(header, rows, left=3) if rows else "No shape is in the shipped tables too."
