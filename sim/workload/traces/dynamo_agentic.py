"""Agents' requests that wait for each other: the agentic Mooncake lines of ``dynamo.replay``.

A row is one of Mooncake's with a ``request_id`` of its own and, if it depends on others, their ids
in ``wait_for``: several where an agent joins what it had spawned. It is sent ``delay`` +
``tool_wait_ms`` after the last of them was answered; a row that waits for none comes at its
``timestamp`` (ms). ``input_length`` and ``hash_ids`` are those of the whole prompt. Names as in
``dynamo-data-gen`` 1.4 (docs.rs, ``AgenticMooncakeRow``); ``branches``, ``prefix_reset`` and
``tool_events`` tell nothing that these do not.
"""

from __future__ import annotations

import json
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.prefix_chains import offsets_of, take_rows
from dynosim.sim.workload.trace_file import TraceFile
from dynosim.sim.workload.trace_rows import MAX_S, TraceRows, arrival_column, token_column
from dynosim.sim.workload.traces.mooncake import (
    BLOCK_TOKENS,
    Row,
    check_block_rule,
    hash_id_rows,
    number_column,
    parse_rows,
    session_numbers,
)
from dynosim.sim.workload.turns import Turns

EXPECTS = 'as mooncake, with "request_id" and, in rows that wait for others, "wait_for"'
WAITS = ("delay", "tool_wait_ms")
STAMP = "timestamp"


def sniff(head: str) -> bool:
    """Returns whether ``head``, the first line, has a request's own id."""
    return head.lstrip().startswith("{") and '"request_id"' in head


def read(file: TraceFile, *, block_tokens: int | None = None) -> TraceRows:
    """Returns the rows, none before those that it waits for; ``block_tokens`` is by default 512."""
    rows = parse_rows(file)
    _refuse_later_schema(rows, file)
    before, offsets = _waits(rows, file)
    order = _order(before, offsets, file)
    tokens = token_column(number_column(rows, "input_length", file), "input_length", file.where)
    answers = token_column(number_column(rows, "output_length", file), "output_length", file.where)
    ids, counts = hash_id_rows(rows, file)
    block = (block_tokens or BLOCK_TOKENS) if counts is not None else 0
    if counts is not None:
        check_block_rule(tokens, counts, block, file)
    turns = Turns(before=before, offsets=offsets, think_s=_think_s(rows, file))
    found = TraceRows(
        arrival_ns=_arrivals(rows, before, offsets, order, file),
        input_tokens=tokens,
        output_tokens=answers,
        hash_ids=ids,
        hash_offsets=offsets_of(np.zeros(len(rows), np.int64) if counts is None else counts),
        block_tokens=block,
        session=session_numbers(rows, file),
        turns=turns,
    )
    return _in_order(found, turns, order)


def _refuse_later_schema(rows: list[Row], file: TraceFile) -> None:
    for index, row in enumerate(rows):
        if "dependencies" in row or "schema" in row:
            key = "dependencies" if "dependencies" in row else "schema"
            raise UserError(
                f"the row has `{key}`, as of dynamo-data-gen 1.6, which is not read",
                where=file.where(index),
                hint=f"allowed: {EXPECTS}",
            )


def _waits(rows: list[Row], file: TraceFile) -> tuple[IntArray, IntArray]:
    """Returns ragged rows of the numbers of the rows that each one waits for."""
    number = _numbers(rows, file)
    before: list[int] = []
    counts = []
    for index, row in enumerate(rows):
        waits = row.get("wait_for") or []
        if not isinstance(waits, list) or not all(isinstance(name, str) for name in waits):
            message = f"`wait_for` is {json.dumps(waits)[:60]}"
            raise UserError(message, where=file.where(index), hint="allowed: a list of request ids")
        for name in waits:
            if name not in number:
                raise _unknown(name, number, file.where(index))
        own = sorted({number[name] for name in waits})
        before += own
        counts.append(len(own))
    return np.array(before, dtype=np.int64), offsets_of(np.array(counts, dtype=np.int64))


def _numbers(rows: list[Row], file: TraceFile) -> dict[str, int]:
    """Returns the row of every request id; raises UserError for none, and for one used twice."""
    number: dict[str, int] = {}
    for index, row in enumerate(rows):
        name = row.get("request_id")
        if not isinstance(name, str) or not name:
            found = json.dumps(name)[:60] if "request_id" in row else "missing"
            message = f"`request_id` is {found}"
            raise UserError(message, where=file.where(index), hint="allowed: text, in every row")
        if name in number:
            other = file.where(number[name]).rpartition(":")[2]
            message = f"`request_id` {name!r} is also that of line {other}"
            raise UserError(message, where=file.where(index), hint="allowed: one row a request")
        number[name] = index
    return number


def _unknown(name: str, number: dict[str, int], where: str) -> UserError:
    import difflib

    near = difflib.get_close_matches(name, number, n=1)
    hint = f"nearest: {near[0]!r}" if near else "allowed: a `request_id` of this file"
    return UserError(f"`wait_for` names {name!r}, which no row is", where=where, hint=hint)


def _order(before: IntArray, offsets: IntArray, file: TraceFile) -> list[int]:
    """Returns the rows, each after all that it waits for, else as in the file (Kahn 1962)."""
    left = np.diff(offsets).tolist()
    owner = np.repeat(np.arange(len(left)), np.diff(offsets)).tolist()
    later: dict[int, list[int]] = {}
    for other, index in zip(before.tolist(), owner, strict=True):
        later.setdefault(other, []).append(index)
    ready = [index for index, count in enumerate(left) if not count]
    heapify(ready)
    order = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for other in later.get(index, ()):
            left[other] -= 1
            if not left[other]:
                heappush(ready, other)
    if len(order) < len(left):
        index = next(i for i, count in enumerate(left) if count)
        message = "the row waits for itself, by way of those that it waits for"
        raise UserError(message, where=file.where(index), hint="allowed: waits without a circle")
    return order


def _think_s(rows: list[Row], file: TraceFile) -> FloatArray:
    """Returns how long each row comes after the last one that it waits for."""
    think_s = np.zeros(len(rows))
    for index, row in enumerate(rows):
        for key in WAITS:
            wait_ms = row.get(key) or 0
            if type(wait_ms) not in (int, float) or not 0 <= wait_ms < MAX_S * 1e3:
                message = f"`{key}` is {json.dumps(wait_ms)[:60]}"
                hint = "allowed: a finite number of milliseconds >= 0"
                raise UserError(message, where=file.where(index), hint=hint)
            think_s[index] += wait_ms * 1e-3
    return think_s


def _arrivals(
    rows: list[Row], before: IntArray, offsets: IntArray, order: list[int], file: TraceFile
) -> IntArray:
    """Returns arrivals in ns; a row that waits for others has that of the last of them."""
    firsts = np.flatnonzero(np.diff(offsets) == 0)
    stamps = np.zeros(len(rows))
    stamps[firsts] = number_column([rows[i] for i in firsts.tolist()], STAMP, file, firsts)
    bounds = offsets.tolist()
    for index in order:
        waits = before[bounds[index] : bounds[index + 1]]
        if len(waits):
            stamps[index] = stamps[waits].max()
    return arrival_column(stamps, STAMP, file.where, unit_s=1e-3)


def _in_order(found: TraceRows, turns: Turns, order: list[int]) -> TraceRows:
    rows = np.array(order, dtype=np.int64)
    ids, offsets = take_rows(found.hash_ids, found.hash_offsets, rows)
    return replace(
        found,
        arrival_ns=found.arrival_ns[rows],
        input_tokens=found.input_tokens[rows],
        output_tokens=found.output_tokens[rows],
        hash_ids=ids,
        hash_offsets=offsets,
        session=None if found.session is None else found.session[rows],
        turns=turns.kept(rows),
    )
