"""Mooncake JSON lines whose later turns have only what is new: AIPerf's agentic traces.

``input_length`` and ``hash_ids`` of a turn with ``delay`` count what it adds to its session: its
prompt is that of the turn before it, the answer to that, and ``input_length`` tokens more. Nothing
in such a file tells it from one with whole prompts, so that the format has to be asked for.

Blocks of a whole prompt do not line up with those of its parts. The first turn's ids stand for its
own full blocks, which other sessions may share; all blocks behind them are the session's own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.workload.prefix_chains import offsets_of
from dynosim.sim.workload.trace_file import TraceFile
from dynosim.sim.workload.trace_rows import TraceRows
from dynosim.sim.workload.traces.mooncake import read_rows

EXPECTS = 'as mooncake, but later turns of a session (with "delay") have only what they add'


def sniff(head: str) -> bool:
    """Returns False: a first line does not tell."""
    return False


def read(file: TraceFile, *, block_tokens: int | None = None) -> TraceRows:
    """Returns the rows with whole prompts; ``block_tokens`` is B, by default 512."""
    rows = read_rows(file, block_tokens, is_whole=False)
    if rows.previous is None:
        return rows
    first, tokens = _accumulated(rows.previous, rows.input_tokens, rows.output_tokens)
    if not rows.block_tokens:
        return replace(rows, input_tokens=tokens)
    ids, offsets = _ids(rows, first, tokens)
    return replace(rows, input_tokens=tokens, hash_ids=ids, hash_offsets=offsets)


def _accumulated(
    previous: IntArray, added: IntArray, outputs: IntArray
) -> tuple[IntArray, IntArray]:
    """Returns the first turn of each row's session, and the tokens of its whole prompt."""
    first, tokens = np.arange(len(added)), added.copy()
    for row, before in enumerate(previous.tolist()):
        if before >= 0:
            first[row] = first[before]
            tokens[row] += tokens[before] + outputs[before]
    return first, tokens


def _ids(rows: TraceRows, first: IntArray, tokens: IntArray) -> tuple[IntArray, IntArray]:
    """Returns ids of all full blocks: of the first turn's as given, then one's own by number."""
    counts = tokens // rows.block_tokens
    given = rows.input_tokens[first] // rows.block_tokens
    base = int(rows.hash_ids.max(initial=-1)) + 1
    width = int(counts.max(initial=0))
    parts = []
    for start, count, shared in zip(first.tolist(), counts.tolist(), given.tolist(), strict=True):
        head = rows.hash_ids[rows.hash_offsets[start] :][: min(shared, count)]
        own = base + start * width + np.arange(len(head), count)
        parts += [head, own]
    return np.concatenate(parts).astype(np.int64), offsets_of(counts)
