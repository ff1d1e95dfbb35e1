"""``dynosim capacity``: the most users within latency limits, and the sweep behind the answer."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dynosim.commands.simulate import File
from dynosim.flags import Debug, Json, Quiet, takes_fields_of
from dynosim.hardware_models.errors import UserError
from dynosim.outputs import check_writable
from dynosim.planning.capacity import CONFIDENCE, SEEDS, Capacity, find_capacity
from dynosim.planning.load import UNITS, Kind
from dynosim.planning.observation import Observation
from dynosim.planning.users import DEFAULT_THINK_S
from dynosim.question import Question, read_question
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.slo_flag import SloWords, required_slos
from dynosim.summary import parallel_shape, shown
from dynosim.terminal import print_json, print_note, table

Of = Annotated[
    Kind,
    Parameter(help="What to find the most of: requests in flight, or requests per second."),
]
Seeds = Annotated[
    int, Parameter(metavar="INT", help="Draws of the workload; several give the interval.")
]
Think = Annotated[
    float,
    Parameter(
        metavar="SECONDS",
        help="Time that a client thinks between an answer and the next question; it turns "
        "requests in flight into people.",
    ),
]
Plot = Annotated[
    Path | None, Parameter(metavar="PNG", help="Draw latencies and throughput over the load.")
]


@takes_fields_of(Deployment=Deployment, Workload=WorkloadSpec)
def capacity_command(
    file: File = None,
    /,
    *,
    slo: SloWords = (),
    of: Of = "concurrency",
    seeds: Seeds = SEEDS,
    think_time: Think = DEFAULT_THINK_S,
    json: Json = False,
    plot: Plot = None,
    quiet: Quiet = False,
    debug: Debug = False,
    **flags: Any,
) -> None:
    """Find the most users, or requests a second, whose latency stays within limits.

    The workload's mix of requests is fixed; how many of them come at once is searched. A
    deployment that keeps no limit has the capacity 0: an answer, with the exit code 0.
    """
    check_writable({"--plot": plot})
    if seeds < 1:
        raise UserError(f"found {seeds}", where="--seeds", hint="allowed: >= 1")
    if not 0 <= think_time < math.inf:
        raise UserError(f"found {think_time:g}", where="--think-time", hint="allowed: seconds >= 0")
    question = read_question(file, flags)
    slos = required_slos(slo, question.slos)
    capacity = find_capacity(
        question.deployment, question.workload, slos, kind=of, seeds=seeds, think_s=think_time
    )
    if json:
        print_json(as_json(question, capacity))
    else:
        print("\n".join(as_text(capacity)))
    if plot is not None:
        from dynosim.planning.capacity_figure import capacity_figure
        from dynosim.search.figure import save_png

        save_png(capacity_figure(capacity, "\n".join(_head(capacity))), plot)
    for note in capacity.notes:
        print_note(f"note: {note}", quiet=quiet)


def as_text(capacity: Capacity) -> list[str]:
    """Returns one screen: the answer, in three kinds of users, its limits, and the sweep."""
    lines = [*_head(capacity), "", *_answer(capacity)]
    facts = [("Narrowest", capacity.narrowest), *_limits(capacity)]
    lines += [f"{name:<13} {text}" for name, text in facts]
    return [*lines, "", _sweep(capacity)]


def _head(capacity: Capacity) -> list[str]:
    seen = capacity.sweep[0].simulation
    engine, deployment = seen.engine, seen.deployment
    backend = f"{engine.backend.name} {engine.backend.version}"
    shape = f"{deployment.replicas} × {parallel_shape(engine.args)}"
    return [
        f"{engine.model.name} on {deployment.num_gpus} × {engine.gpu.name} ({shape}), {backend}",
        f"limits: {', '.join(map(str, capacity.slos))}",
    ]


def _answer(capacity: Capacity) -> list[str]:
    unit = UNITS[capacity.kind]
    if capacity.at is None:
        assert capacity.beyond is not None, "a boundary has a side"
        load = f"{capacity.beyond.load.shown} {unit}"
        return [f"Capacity      none: a load of {load} already breaks a limit"]
    count = len(capacity.per_seed)
    spread = ""
    if count > 1:
        spread = f" ({CONFIDENCE:.0%} interval {_size(capacity, capacity.low)} to "
        spread += f"{_size(capacity, capacity.high)}, {count} seeds)"
    least = "at least " if capacity.is_open else ""
    lines = [f"Capacity      {least}{_size(capacity, capacity.value)} {unit}{spread}"]
    if capacity.expected is not None:
        low, high = (_size(capacity, value) for value in capacity.expected)
        lines.append(
            f"Expect        {low} to {high} where predictions err as 80 % of measured ones"
        )
    assert capacity.users is not None, "a capacity has users"
    lines.append("As users      with the first seed at that load, one of:")
    return lines + [f"{number:>13} {what}" for number, what in capacity.users.rows()]


def _size(capacity: Capacity, value: float) -> str:
    return f"{value:,.0f}" if capacity.kind == "concurrency" else f"{value:,.3g}"


def _limits(capacity: Capacity) -> list[tuple[str, str]]:
    room = capacity.room
    return [
        (
            "KV pool",
            f"{room.kv_tokens:,} tokens: {room.kv_requests:,.0f} requests at their mean of "
            f"{room.live_tokens:,.0f} tokens, {room.kv_requests_full:,.0f} at their end",
        ),
        ("Engine", f"{room.max_num_seqs:,} sequences (max_num_seqs, all replicas and ranks)"),
    ]


def _sweep(capacity: Capacity) -> str:
    bounded = [(s.metric, f"{s.statistic} {s.kind.upper()}", s.kind) for s in capacity.slos]
    names = [
        (metric, label)
        for bound, head, kind in bounded
        for metric, label in ((f"p50_{kind}_ms", f"p50 {kind.upper()}"), (bound, head))
    ]
    names = list(dict(names).items())
    header = ["In flight" if capacity.kind == "concurrency" else "Requests/s", "ok/total"]
    header += [f"{label} ms" for _, label in names] + ["tok/s", "tok/s/user", ""]
    return table(header, [_sweep_row(capacity, o, names) for o in capacity.sweep])


def _sweep_row(capacity: Capacity, seen: Observation, names: list[tuple[str, str]]) -> list[str]:
    is_capacity = capacity.at is not None and seen.load == capacity.at.load
    mark = "< capacity" if is_capacity else "" if seen.excess(capacity.slos) <= 0 else "over"
    return [
        seen.load.shown,
        f"{seen.ok:,}/{seen.total:,}",
        *(shown(seen.latencies_ms[metric], ",.1f") for metric, _ in names),
        f"{seen.metrics['output_throughput']:,.0f}",
        shown(seen.metrics["output_tok_s_per_user"], ",.1f"),
        mark,
    ]


def as_json(question: Question, capacity: Capacity) -> dict[str, Any]:
    """Returns the capacity as plain values; loads in the unit that ``kind`` names."""
    has_interval = len(capacity.per_seed) > 1
    return {
        "deployment": asdict(question.deployment),
        "workload": {k: v for k, v in asdict(question.workload).items() if v is not None},
        "kind": capacity.kind,
        "unit": UNITS[capacity.kind],
        "slos_ms": {slo.metric: slo.limit_ms for slo in capacity.slos},
        "capacity": capacity.value,
        "interval_95": [capacity.low, capacity.high] if has_interval else None,
        "per_seed": list(capacity.per_seed),
        "is_lower_bound": capacity.is_open,
        "expected_80": list(capacity.expected) if capacity.expected else None,
        "users": asdict(capacity.users) if capacity.users else None,
        "narrowest": capacity.narrowest,
        "room": asdict(capacity.room)
        | {
            "kv_requests": capacity.room.kv_requests,
            "kv_requests_full": capacity.room.kv_requests_full,
        },
        "sweep": [_point(o, capacity) for o in capacity.sweep],
        "notes": list(capacity.notes),
    }


def _point(seen: Observation, capacity: Capacity) -> dict[str, Any]:
    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "load": seen.load.size,
        "ok": seen.ok,
        "total": seen.total,
        "refused": seen.refused,
        "is_stable": seen.is_stable,
        "keeps_limits": seen.excess(capacity.slos) <= 0,
        "latencies_ms": {name: finite(value) for name, value in seen.latencies_ms.items()},
        "request_throughput": seen.request_throughput,
        "output_throughput": seen.metrics["output_throughput"],
        "output_tok_s_per_gpu": seen.metrics["output_tok_s_per_gpu"],
        "output_tok_s_per_user": finite(seen.metrics["output_tok_s_per_user"]),
        "mean_in_flight": seen.in_flight,
    }
