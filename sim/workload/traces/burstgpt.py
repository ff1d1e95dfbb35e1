"""BurstGPT: ``Timestamp`` (s), ``Request tokens``, ``Response tokens``, read by column name.

Newer files have ``Session ID`` and ``Elapsed time`` between the columns of the older ones.
``Response tokens`` of 0 is a request that failed: it is dropped and counted.
"""

from __future__ import annotations

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.csv_table import has_columns, read_table
from dynosim.sim.workload.trace_file import TraceFile
from dynosim.sim.workload.trace_rows import TraceRows, arrival_column, token_column

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
EXPECTS = f"CSV with columns {','.join(COLUMNS)} (seconds)"


def sniff(head: str) -> bool:
    """Returns whether ``head``, the first line, is this format's header."""
    return has_columns(head, COLUMNS)


def read(file: TraceFile, *, block_tokens: int | None = None) -> TraceRows:
    """Returns the answered requests; the format has no prefixes."""
    table = read_table(file, COLUMNS)
    stamp, request, response = table.numbers(*COLUMNS)
    answered: IntArray = np.flatnonzero(response != 0)
    if not len(answered):
        found = f"all {len(response)} rows failed (`Response tokens` is 0)"
        raise UserError(found, where=file.path, hint="allowed: at least one answered request")

    def where(row: int) -> str:
        return table.where(int(answered[row]))

    failed = len(response) - len(answered)
    return TraceRows(
        arrival_ns=arrival_column(stamp[answered], COLUMNS[0], where, unit_s=1.0),
        input_tokens=token_column(request[answered], COLUMNS[1], where),
        output_tokens=token_column(response[answered], COLUMNS[2], where),
        notes=(f"dropped {failed} failed requests (Response tokens 0)",) if failed else (),
    )
