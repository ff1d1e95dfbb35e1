"""Events of Chrome's trace-event format, which Perfetto opens; times in microseconds.

The format: "Trace Event Format", Google, 2016 (complete events X, counters C, nestable async
events b and e, instants i, metadata M).
"""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]
STEPS, BOUND_BY = 1, 2
"""Thread numbers of a replica's tracks."""


def process(replica: int, name: str) -> list[Event]:
    """Returns the metadata of one replica's tracks."""
    pid = replica + 1
    threads = {STEPS: "steps", BOUND_BY: "bound by"}
    return [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}},
        *(
            {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": label}}
            for tid, label in threads.items()
        ),
    ]


def slice_(
    replica: int, thread: int, name: str, start_s: float, end_s: float, args: dict[str, Any]
) -> Event:
    """Returns something that took a while on one track."""
    return {
        "ph": "X",
        "pid": replica + 1,
        "tid": thread,
        "name": name,
        "ts": _us(start_s),
        "dur": max(round(_us(end_s) - _us(start_s), 3), 0.0),
        "args": args,
    }


def counter(replica: int, name: str, time_s: float, value: float) -> Event:
    """Returns what a gauge shows from now on."""
    return {
        "ph": "C",
        "pid": replica + 1,
        "name": name,
        "ts": _us(time_s),
        "args": {"value": value},
    }


def instant(replica: int, thread: int, name: str, time_s: float, args: dict[str, Any]) -> Event:
    """Returns something that happened at one time on one track."""
    return {
        "ph": "i",
        "pid": replica + 1,
        "tid": thread,
        "name": name,
        "ts": _us(time_s),
        "s": "t",
        "args": args,
    }


def async_pair(
    replica: int,
    request: int,
    name: str,
    start_s: float,
    end_s: float,
    args: dict[str, Any],
    kind: str = "request",
) -> tuple[Event, Event]:
    """Returns the beginning and the end of a stage of a request."""
    common = {"cat": kind, "id": str(request), "pid": replica + 1, "tid": STEPS, "name": name}
    begin = {"ph": "b", **common, "ts": _us(start_s), "args": args}
    return begin, {"ph": "e", **common, "ts": _us(max(end_s, start_s))}


def _us(time_s: float) -> float:
    """Returns microseconds with three decimals: nanoseconds, which Perfetto counts in."""
    return round(time_s * 1e6, 3)
