"""Vidur's processed traces: ``arrived_at`` (s), ``num_prefill_tokens``, ``num_decode_tokens``."""

from __future__ import annotations

from dynosim.sim.workload.csv_table import has_columns, read_table
from dynosim.sim.workload.trace_file import TraceFile
from dynosim.sim.workload.trace_rows import TraceRows, arrival_column, token_column

COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
EXPECTS = f"CSV with columns {','.join(COLUMNS)} (seconds)"


def sniff(head: str) -> bool:
    """Returns whether ``head``, the first line, is this format's header."""
    return has_columns(head, COLUMNS)


def read(file: TraceFile, *, block_tokens: int | None = None) -> TraceRows:
    """Returns the rows; the format has no prefixes."""
    table = read_table(file, COLUMNS)
    arrived_at, prefill, decode = table.numbers(*COLUMNS)
    return TraceRows(
        arrival_ns=arrival_column(arrived_at, COLUMNS[0], table.where, unit_s=1.0),
        input_tokens=token_column(prefill, COLUMNS[1], table.where),
        output_tokens=token_column(decode, COLUMNS[2], table.where),
    )
