"""Azure LLM traces: ``TIMESTAMP`` (UTC, 100 ns steps), ``ContextTokens``, ``GeneratedTokens``."""

from __future__ import annotations

import re

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.csv_table import CsvTable, has_columns, read_table
from dynosim.sim.workload.trace_file import TraceFile
from dynosim.sim.workload.trace_rows import TraceRows, token_column

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
EXPECTS = f"CSV with columns {','.join(COLUMNS)} (date and time)"
STAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?:Z|\+00:00)?")


def sniff(head: str) -> bool:
    """Returns whether ``head``, the first line, is this format's header."""
    return has_columns(head, COLUMNS)


def read(file: TraceFile, *, block_tokens: int | None = None) -> TraceRows:
    """Returns the rows; the format has no prefixes."""
    table = read_table(file, COLUMNS)
    context, generated = table.numbers(*COLUMNS[1:])
    images = has_columns(file.lines[0], ("NumImages",))
    return TraceRows(
        arrival_ns=_stamps_ns(table),
        input_tokens=token_column(context, COLUMNS[1], table.where),
        output_tokens=token_column(generated, COLUMNS[2], table.where),
        notes=("NumImages is not simulated: image encoding costs nothing",) if images else (),
    )


def _stamps_ns(table: CsvTable) -> IntArray:
    plain = []
    for row, stamp in enumerate(table.strings(COLUMNS[0])):
        if (match := STAMP.fullmatch(stamp)) is None:
            raise _bad_stamp(table, row, stamp)
        plain.append(match[1])
    try:
        return np.array(plain, dtype="datetime64[ns]").astype(np.int64)
    except ValueError:
        bad = next(row for row, stamp in enumerate(plain) if not _is_date(stamp))
        raise _bad_stamp(table, bad, plain[bad]) from None


def _is_date(stamp: str) -> bool:
    try:
        np.datetime64(stamp, "ns")
    except ValueError:
        return False
    return True


def _bad_stamp(table: CsvTable, row: int, stamp: str) -> UserError:
    hint = "allowed: UTC such as 2023-11-16 18:17:03.9799600, with or without +00:00"
    return UserError(f"`{COLUMNS[0]}` is {stamp!r}", where=table.where(row), hint=hint)
