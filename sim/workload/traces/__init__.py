"""Trace readers: one module a format, found by listing this package.

A format module has ``EXPECTS`` (one line: what its files look like), ``sniff(head) -> bool`` on a
file's first line, and ``read(file, *, block_tokens) -> TraceRows``; dropping one in makes the
format known. An outside package adds one as an entry point of the group named after this package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, cast

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module, module_names, own_names
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.replay import replay
from dynosim.sim.workload.trace_file import TraceFile, open_trace_file
from dynosim.sim.workload.trace_rows import TraceRows


class TraceFormat(Protocol):
    """What a format module provides."""

    EXPECTS: str

    def sniff(self, head: str) -> bool:
        """Returns whether a file with this first line may be of the format."""

    def read(self, file: TraceFile, *, block_tokens: int | None = None) -> TraceRows:
        """Returns the rows in file order; raises ``UserError`` naming file and line."""


def trace_formats() -> dict[str, TraceFormat]:
    """Returns every known format by name: the modules of this package and outside ones."""
    return {name: trace_format(name) for name in module_names(__name__)}


def trace_format(name: str) -> TraceFormat:
    """Returns the format called ``name``; raises ``UserError`` with the nearest names."""
    try:
        return cast(TraceFormat, find_module(__name__, "trace format", name))
    except UserError as error:
        raise error.at("trace_format") from None


def told_from(head: str) -> TraceFormat | None:
    """Returns the format of a file with this first line, None where no known one fits."""
    # Our own first: to ask for outside ones takes longer than to read many a trace.
    for names in (own_names, module_names):
        for reader in map(trace_format, sorted(names(__name__))):
            if reader.sniff(head):
                return reader
    return None


def read_trace(
    path: str | Path,
    format: str | None = None,
    *,
    rate_scale: float = 1.0,
    jitter_ticks: bool = False,
    limit: int | None = None,
    seed: int = 0,
    block_tokens: int | None = None,
) -> Workload:
    """Returns the requests of a trace in arrival order, the first at 0 s.

    ``format`` is a name of :func:`trace_formats`, by default told from the first line.
    ``rate_scale`` divides the times between arrivals. ``jitter_ticks`` spreads the requests that
    share a tick evenly at random (``seed``) over the tick's interval, the grid on which the
    stamps lie. ``limit`` keeps the first N requests. ``block_tokens`` is the size of a
    ``hash_ids`` block where it is not the format's own. Raises ``UserError`` for anything that
    is not a sound trace, with file and line.
    """
    file = open_trace_file(path)
    rows = _format_of(file, format).read(file, block_tokens=block_tokens)
    if block_tokens is not None and not rows.block_tokens:
        raise UserError("block_tokens is given but the trace has no hash_ids", where=file.path)
    return replay(
        rows,
        name=Path(path).name,
        rate_scale=rate_scale,
        jitter_ticks=jitter_ticks,
        limit=limit,
        seed=seed,
    )


def _format_of(file: TraceFile, name: str | None) -> TraceFormat:
    if name is not None:
        return trace_format(name)
    head = file.head
    reader = told_from(head)
    if reader is not None:
        return reader
    found = head if len(head) <= 80 else head[:79] + "…"
    allowed = "".join(f"\n  {name}: {reader.EXPECTS}" for name, reader in trace_formats().items())
    message = f"no known trace format has this first line: {found!r}"
    raise UserError(message, where=file.where(0), hint=f"allowed:{allowed}")
