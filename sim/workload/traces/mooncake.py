"""Mooncake JSON lines: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

``hash_ids`` has one id for each block of B prompt tokens, the last partial block included:
(n - 1)·B < input_length <= n·B, with B = 512 in the published traces (FAST'25). Writers that
list full blocks only (n = floor(input_length / B) in every row) are read too. ``session_id``, if
there, is one text or number a conversation; each turn comes at its own ``timestamp``, or ``delay``
ms after the answer to the turn before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.prefix_chains import offsets_of
from dynosim.sim.workload.trace_file import TraceFile
from dynosim.sim.workload.trace_rows import MAX_S, TraceRows, arrival_column, token_column

EXPECTS = 'JSON lines with "timestamp" (ms), "input_length", "output_length", "hash_ids"'
BLOCK_TOKENS = 512
LINE_END = "\n"
STAMPS = ("timestamp", "timestamp_ms")
# Rows of sibling formats: their lengths, ids or units mean something else, so they are refused.
FOREIGN = {
    "chat_id": "Qwen-Bailian rows (seconds, 16-token blocks)",
    "arrival_time_ns": "LLMServingSim rows (nanoseconds)",
    "requests": "AIBrix rows (several requests a tick)",
    "wait_for": "rows that wait for others (trace_format: dynamo_agentic)",
}

Row = Mapping[str, Any]


def sniff(head: str) -> bool:
    """Returns whether ``head``, the first line, may be this format's first row."""
    return head.lstrip().startswith("{")


def read(file: TraceFile, *, block_tokens: int | None = None) -> TraceRows:
    """Returns the rows with their block ids; ``block_tokens`` is B, by default 512."""
    return read_rows(file, block_tokens, is_whole=True)


def read_rows(file: TraceFile, block_tokens: int | None, *, is_whole: bool) -> TraceRows:
    """Returns the rows; where each has all of its prompt (``is_whole``), its ids are checked."""
    rows = parse_rows(file)
    _refuse_foreign(rows, file)
    stamp = STAMPS[1] if STAMPS[1] in rows[0] else STAMPS[0]
    session = session_numbers(rows, file)
    previous, think_s = _delays(rows, session, file)
    arrival_ns = _arrivals(rows, stamp, previous, file)
    tokens = number_column(rows, "input_length", file)
    input_tokens = token_column(tokens, "input_length", file.where)
    tokens = number_column(rows, "output_length", file)
    output_tokens = token_column(tokens, "output_length", file.where)
    ids, counts = hash_id_rows(rows, file)
    block = (block_tokens or BLOCK_TOKENS) if counts is not None else 0
    if counts is not None and is_whole:
        check_block_rule(input_tokens, counts, block, file)
    return TraceRows(
        arrival_ns=arrival_ns,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        hash_ids=ids,
        hash_offsets=offsets_of(np.zeros(len(rows), np.int64) if counts is None else counts),
        block_tokens=block,
        session=session,
        previous=previous if (previous >= 0).any() else None,
        think_s=think_s if (previous >= 0).any() else None,
    )


def _delays(
    rows: list[Row], session: IntArray | None, file: TraceFile
) -> tuple[IntArray, FloatArray]:
    """Returns the row whose answer each row waits for, -1 for none, and seconds from then on."""
    previous = np.full(len(rows), -1, dtype=np.int64)
    think_s = np.zeros(len(rows))
    last: dict[int, int] = {}
    for index, row in enumerate(rows):
        number = index if session is None else int(session[index])
        if "delay" in row:
            if number not in last:
                message = "the row has `delay`, but its session has no earlier row"
                hint = "allowed: `timestamp` in the first turn of a `session_id`, then `delay`"
                raise UserError(message, where=file.where(index), hint=hint)
            delay_ms = row["delay"]
            if type(delay_ms) not in (int, float) or not 0 <= delay_ms < MAX_S * 1e3:
                message = f"`delay` is {json.dumps(delay_ms)[:60]}"
                hint = "allowed: a finite number of milliseconds >= 0"
                raise UserError(message, where=file.where(index), hint=hint)
            previous[index], think_s[index] = last[number], delay_ms * 1e-3
        last[number] = index
    return previous, think_s


def _arrivals(rows: list[Row], stamp: str, previous: IntArray, file: TraceFile) -> IntArray:
    """Returns arrivals in ns; a row that waits for another has that one's."""
    firsts = np.flatnonzero(previous < 0)
    stamps = np.zeros(len(rows))
    stamps[firsts] = number_column([rows[i] for i in firsts.tolist()], stamp, file, firsts)
    for index in np.flatnonzero(previous >= 0).tolist():
        stamps[index] = stamps[previous[index]]
    return arrival_column(stamps, stamp, file.where, unit_s=1e-3)


def session_numbers(rows: list[Row], file: TraceFile) -> IntArray | None:
    """Returns the number of each row's session, by first appearance; None where no row has one.

    A row without an id is a session of its own.
    """
    if not any("session_id" in row for row in rows):
        return None
    numbers: dict[object, int] = {}
    column = np.empty(len(rows), dtype=np.int64)
    for index, row in enumerate(rows):
        key = row.get("session_id")
        if not isinstance(key, str | int | None):
            message = f"`session_id` is {json.dumps(key)[:60]}"
            raise UserError(message, where=file.where(index), hint="allowed: text or whole numbers")
        column[index] = numbers.setdefault((index,) if key is None else key, len(numbers))
    return column


def parse_rows(file: TraceFile) -> list[Row]:
    # One call for the whole file takes half the time of one a line. Lines matter where something
    # is wrong, or blank.
    text = file.text.rstrip()
    try:
        rows = json.loads(f"[{text.replace(LINE_END, ',')}]")
        if len(rows) == 1 + text.count(LINE_END) and set(map(type, rows)) == {dict}:
            return rows  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        pass
    return [_parse_line(line, index, file) for index, line in enumerate(file.lines)]


def _parse_line(line: str, index: int, file: TraceFile) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        found = line if len(line) <= 60 else line[:59] + "…"
        message = f"malformed JSON ({error}): {found!r}"
        hint = "allowed: one JSON object a line"
        raise UserError(message, where=file.where(index), hint=hint) from None
    if not isinstance(row, dict):
        hint = f"allowed: {EXPECTS}"
        raise UserError(f"a {type(row).__name__}, no object", where=file.where(index), hint=hint)
    return row


def _refuse_foreign(rows: list[Row], file: TraceFile) -> None:
    for key in FOREIGN.keys() & set().union(*rows):
        index = next(i for i, row in enumerate(rows) if key in row)
        message = f"the row has `{key}`: {FOREIGN[key]} are not read by this version"
        raise UserError(message, where=file.where(index), hint=f"allowed: {EXPECTS}")


def number_column(
    rows: list[Row], key: str, file: TraceFile, numbers: IntArray | None = None
) -> FloatArray:
    """Returns the numbers under a key; rows are those of these numbers, or all of the file."""
    values = [row.get(key) for row in rows]
    if not set(map(type, values)) <= {int, float}:
        index = next(i for i, v in enumerate(values) if type(v) not in (int, float))
        line = index if numbers is None else int(numbers[index])
        raise _no_number(rows[index], key, file.where(line))
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:
        return np.array([min(v, 1e300) for v in values if v is not None])


def _no_number(row: Row, key: str, where: str) -> UserError:
    if key not in row:
        return UserError(f"no key `{key}`", where=where, hint=f"found: {', '.join(row)}")
    return UserError(
        f"`{key}` is {json.dumps(row[key])[:60]}", where=where, hint="allowed: a number"
    )


def hash_id_rows(rows: list[Row], file: TraceFile) -> tuple[IntArray, IntArray | None]:
    """Returns all ids in one array and their number a row, None where no row has ids."""
    if not any("hash_ids" in row for row in rows):
        return np.empty(0, dtype=np.int64), None
    lists = [row.get("hash_ids") for row in rows]
    if set(map(type, lists)) != {list}:
        index = next(i for i, ids in enumerate(lists) if not isinstance(ids, list))
        raise _bad_ids(rows[index], file.where(index))
    flat = list(chain.from_iterable(ids for ids in lists if ids is not None))
    if not set(map(type, flat)) <= {int}:
        index = next(i for i, ids in enumerate(lists) if {type(x) for x in ids or ()} - {int})
        raise _bad_ids(rows[index], file.where(index))
    counts = np.fromiter((len(ids) for ids in lists if ids is not None), dtype=np.int64)
    return _as_int64(flat, rows, file), counts


def _as_int64(flat: Sequence[int], rows: list[Row], file: TraceFile) -> IntArray:
    try:
        return np.fromiter(flat, dtype=np.int64, count=len(flat))
    except OverflowError:
        pass
    try:  # Unsigned 64-bit hashes: the same bits read as signed are as distinct.
        return np.array(flat, dtype=np.uint64).view(np.int64)
    except OverflowError:
        lists = enumerate(row["hash_ids"] for row in rows)
        index = next(i for i, ids in lists if any(not 0 <= x < 2**64 for x in ids))
        raise _bad_ids(rows[index], file.where(index)) from None


def _bad_ids(row: Row, where: str) -> UserError:
    hint = "allowed: a list of whole numbers that fit 64 bits, in every row or in none"
    if "hash_ids" not in row:
        return UserError("no `hash_ids`, which other rows have", where=where, hint=hint)
    return UserError(f"`hash_ids` is {json.dumps(row['hash_ids'])[:60]}", where=where, hint=hint)


def check_block_rule(tokens: IntArray, counts: IntArray, block: int, file: TraceFile) -> None:
    kept = ((counts - 1) * block < tokens) & (tokens <= counts * block)
    if kept.all() or _all_full(tokens, counts, block):
        return
    index = int(np.argmin(kept))
    n, length = int(counts[index]), int(tokens[index])
    fitting = [b for b in (16, 32, 64, 128, 256, 512, 1024) if _fits(tokens, counts, b)]
    hint = f"; all rows fit block_tokens={fitting[0]}" if fitting else ""
    raise UserError(
        f"{n} `hash_ids` for `input_length` {length}, but blocks of {block} tokens make "
        f"{-(-length // block)}",
        where=file.where(index),
        hint=f"allowed: (n-1)*{block} < input_length <= n*{block}{hint}",
    )


def _all_full(tokens: IntArray, counts: IntArray, block: int) -> bool:
    return bool((counts == tokens // block).all())


def _fits(tokens: IntArray, counts: IntArray, block: int) -> bool:
    return bool((counts == -(-tokens // block)).all()) or _all_full(tokens, counts, block)
