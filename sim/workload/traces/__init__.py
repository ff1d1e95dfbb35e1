"""Trace readers: one module a format, found by listing this package.

A format module has ``EXPECTS`` (one line: what its files look like), ``sniff(head) -> bool`` on a
file's first line, and ``read(file, *, block_tokens) -> TraceRows``; dropping one in makes the
format known. An outside package adds one as an entry point of the group ``dynosim.traces``.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.replay import replay
from dynosim.sim.workload.trace_file import TraceFile, open_trace_file
from dynosim.sim.workload.trace_rows import TraceRows

ENTRY_POINTS = "dynosim.traces"


class TraceFormat(Protocol):
    """What a format module provides."""

    EXPECTS: str

    def sniff(self, head: str) -> bool:
        """Returns whether a file with this first line may be of the format."""

    def read(self, file: TraceFile, *, block_tokens: int | None = None) -> TraceRows:
        """Returns the rows in file order; raises ``UserError`` naming file and line."""


def trace_formats() -> dict[str, TraceFormat]:
    """Returns every known format by name: the modules of this package, then outside ones."""
    return _own_formats() | _outside_formats()


def _own_formats() -> dict[str, TraceFormat]:
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return {name: cast(TraceFormat, import_module(f"{__name__}.{name}")) for name in names}


def _outside_formats() -> dict[str, TraceFormat]:
    # Looking through every installed package takes 10 ms: only where no own format serves.
    from importlib.metadata import entry_points

    return {point.name: point.load() for point in entry_points(group=ENTRY_POINTS)}


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
        return _format_named(name)
    head = file.lines[0]
    for find in (_own_formats, _outside_formats):
        for reader in find().values():
            if reader.sniff(head):
                return reader
    raise _unknown_content(file, head)


def _format_named(name: str) -> TraceFormat:
    own = _own_formats()
    if name in own:
        return own[name]
    known = own | _outside_formats()
    if name not in known:
        raise unknown_name("trace format", name, known, where="trace_format")
    return known[name]


def _unknown_content(file: TraceFile, head: str) -> UserError:
    found = head if len(head) <= 80 else head[:79] + "…"
    allowed = "".join(f"\n  {name}: {reader.EXPECTS}" for name, reader in trace_formats().items())
    message = f"no known trace format has this first line: {found!r}"
    return UserError(message, where=file.where(0), hint=f"allowed:{allowed}")
