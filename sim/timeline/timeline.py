"""A run as trace events: replicas as processes, steps and what bound them as tracks.

Requests are async slices with their stages inside; queue depth, running requests and KV use are
counters; preemptions are instants. Of two pools whose replicas come and go, each is a process more,
with counters of its replicas by state.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.bottleneck.attribution import NAMES, Attribution
from dynosim.sim.cluster.scaling.states import ScalingLog, State
from dynosim.sim.result_files import write_atomically
from dynosim.sim.results import ReplicaLog, RunResult
from dynosim.sim.tiers.result import TierResult
from dynosim.sim.timeline.event import (
    BOUND_BY,
    STEPS,
    Event,
    async_pair,
    counter,
    instant,
    process,
    slice_,
)
from dynosim.sim.timeline.preemptions import preemptions

LIMIT = 500_000
"""Events that a browser shows without effort: about 80 MB of JSON."""

STAGES = ("network", "front-end", "router", "queue", "prefill", "decode")
"""What a request goes through; those that took no time are left out."""

Make = Callable[[int], list[Event]]


@dataclass(frozen=True)
class Source:
    """Things of one kind: when each begins, how many events it becomes at most, and those."""

    start_s: FloatArray
    most: int
    make: Make


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Events in order of time, and up to when the run is in them, in seconds."""

    events: list[Event]
    complete_until_s: float
    dropped: int


def timeline(result: RunResult, found: Attribution | None, *, limit: int = LIMIT) -> Timeline:
    """Returns at most ``limit`` events besides tracks' names: those of what begins first."""
    sources = [_requests(result)]
    logs = _logs(result)
    for replica, (_, log) in enumerate(logs):
        sources += [_steps(replica, log), _preemptions(replica, log)]
    if found is not None:
        sources += _bound_by(found, len(result.replicas))
    if result.tiers is not None:
        sources.append(_loads(result.tiers))
    if result.hand_overs is not None and result.hand_overs.tiers is not None:
        sources.append(_loads(result.hand_overs.tiers, len(result.replicas)))
    pools = _scaled_pools(result, len(logs))
    sources += [_states(track, log) for track, _, log in pools]
    kept, until_s, dropped = _earliest(sources, limit)
    events = [event for source, which in kept for i in which for event in source.make(i)]
    events.sort(key=lambda event: float(event["ts"]))
    names = [event for i, (name, _) in enumerate(logs) for event in process(i, name)]
    names += [event for track, name, _ in pools for event in process(track, name)]
    return Timeline(events=names + events, complete_until_s=until_s, dropped=dropped)


def _logs(result: RunResult) -> list[tuple[str, ReplicaLog]]:
    """Returns every engine's name and log; those that only compute prompts come last."""
    logs = [(f"replica {number}", log) for number, log in enumerate(result.replicas)]
    if result.hand_overs is not None:
        prefill = enumerate(result.hand_overs.replicas)
        logs += [(f"prefill replica {number}", log) for number, log in prefill]
    return logs


def _scaled_pools(result: RunResult, track: int) -> list[tuple[int, str, ScalingLog]]:
    """Returns track, name and log of the replicas of every pool of two that come and go."""
    hand_overs = result.hand_overs
    if hand_overs is None:
        return []
    logs = (("decode pool", result.scaling), ("prefill pool", hand_overs.scaling))
    found = [(name, log) for name, log in logs if log is not None]
    return [(track + number, name, log) for number, (name, log) in enumerate(found)]


def _states(track: int, log: ScalingLog) -> Source:
    """Returns how many replicas of a pool are in each state, from each change on."""
    rows = [
        (time_s, state.name.lower(), count)
        for state in State
        if state != State.OFF
        for time_s, count in zip(*(c.tolist() for c in log.counts([state])), strict=True)
    ]
    rows.sort(key=lambda row: row[0])

    def make(i: int) -> list[Event]:
        time_s, name, count = rows[i]
        return [counter(track, f"replicas {name}", time_s, count)]

    return Source(np.array([time_s for time_s, *_ in rows]), 1, make)


def write_timeline(path: Path, found: Timeline) -> None:
    """Writes the JSON object form of the format, one event a line, whole or not at all."""
    about = {
        "displayTimeUnit": "ms",
        "otherData": {
            "complete_until_s": found.complete_until_s,
            "dropped_slices": found.dropped,
        },
    }
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in found.events)
    head = json.dumps(about, allow_nan=False)[:-1]
    write_atomically(path, f'{head}, "traceEvents": [\n{lines}\n]}}\n')


def _earliest(
    sources: list[Source], limit: int
) -> tuple[Iterator[tuple[Source, list[int]]], float, int]:
    """Returns what of each source begins first, up to when that is all, and what is left out."""
    start_s = np.concatenate([source.start_s for source in sources])
    most = np.concatenate([np.full(len(s.start_s), s.most) for s in sources])
    order = np.argsort(start_s, kind="stable")
    fits = np.cumsum(most[order]) <= limit
    is_kept = np.zeros(len(order), dtype=np.bool_)
    is_kept[order[fits]] = True
    until_s = float(start_s[order[fits]][-1]) if fits.any() else 0.0
    bounds = np.cumsum([0, *(len(source.start_s) for source in sources)]).tolist()
    kept = (
        (source, np.flatnonzero(is_kept[low:high]).tolist())
        for source, (low, high) in zip(sources, itertools.pairwise(bounds), strict=True)
    )
    return kept, until_s, int((~fits).sum())


def _steps(replica: int, log: ReplicaLog) -> Source:
    """Returns runs of steps, and after each what its engine's gauges show."""
    steps = log.steps
    end_s = (steps.start_s + steps.durations_s).tolist()
    start_s, counts = steps.start_s.tolist(), steps.counts.astype(np.int64).tolist()
    decode = np.where(steps.is_pause, 0, steps.num_decode).tolist()
    prefill, used = steps.prefill_tokens.tolist(), steps.used_blocks.tolist()
    running, waiting = steps.running.tolist(), steps.waiting.tolist()

    def make(i: int) -> list[Event]:
        parts = [f"prefill {prefill[i]}"] if prefill[i] else []
        parts += [f"decode {decode[i]}"] if decode[i] else []
        name = " + ".join(parts) + (f" × {counts[i]}" if counts[i] > 1 else "")
        args = {
            "steps": counts[i],
            "prefill_tokens": prefill[i],
            "decodes": decode[i],
            "running": running[i],
            "waiting": waiting[i],
            "kv_blocks": used[i],
        }
        return [
            slice_(replica, STEPS, name, start_s[i], end_s[i], args),
            counter(replica, "requests running", start_s[i], running[i]),
            counter(replica, "requests waiting", end_s[i], waiting[i]),
            counter(replica, "KV use", end_s[i], round(used[i] / log.num_blocks, 6)),
        ]

    return Source(steps.start_s, 4, make)


def _preemptions(replica: int, log: ReplicaLog) -> Source:
    """Returns when decoding requests lost their blocks."""
    lost, time_s = preemptions(log)
    requests, times = lost.tolist(), time_s.tolist()

    def make(i: int) -> list[Event]:
        return [instant(replica, STEPS, "preemption", times[i], {"request": requests[i]})]

    return Source(time_s, 1, make)


def _loads(tiers: TierResult, first_track: int = 0) -> Source:
    """Returns loads of KV from lower tiers, each an async slice: several are queued at once."""
    columns = (tiers.replica + first_track, tiers.request, tiers.start_s, tiers.end_s, tiers.tokens)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))

    def make(i: int) -> list[Event]:
        replica, request, start_s, end_s, tokens = rows[i]
        args = {"request": request, "tokens": tokens}
        return list(async_pair(replica, request, "KV load", start_s, end_s, args, kind="transfer"))

    return Source(tiers.start_s, 2, make)


def _requests(result: RunResult) -> Source:
    """Returns completed requests, each a slice from its sending to its last token."""
    done = np.flatnonzero(result.completed)
    columns = (
        result.sent_s,
        result.reached_s,
        result.arrived_s,
        result.routed_s,
        result.scheduled_s,
        result.first_token_s,
        result.finish_s,
    )
    times = np.stack([column[done] for column in columns]).T.tolist()
    replica = result.replica[done].tolist()
    tokens = np.stack(
        [result.workload.input_tokens, result.workload.output_tokens, result.cached_tokens]
    )[:, done].T.tolist()
    number = done.tolist()

    def make(i: int) -> list[Event]:
        at, request = replica[i], number[i]
        names = ("input_tokens", "output_tokens", "cached_tokens")
        args = {"request": request} | dict(zip(names, tokens[i], strict=True))
        # One name for all, so that Perfetto packs them into one track.
        edges = times[i]
        begin, end = async_pair(at, request, "request", edges[0], edges[-1], args)
        events = [begin]
        for name, (start_s, end_s) in zip(STAGES, itertools.pairwise(edges), strict=True):
            if end_s > start_s:
                events += async_pair(at, request, name, start_s, end_s, {})
        return [*events, end]

    return Source(result.sent_s[done], 2 + 2 * len(STAGES), make)


def _bound_by(found: Attribution, num_replicas: int) -> list[Source]:
    """Returns what mostly bound each stretch of time, stretches alike in a row as one."""
    sources = []
    starts = np.flatnonzero(np.diff(found.engine, prepend=-1) != 0)
    bounds = [*starts.tolist(), len(found.engine)]
    for replica, (low, high) in enumerate(itertools.pairwise(bounds)):
        sources.append(_bound_track(replica, found, slice(low, high)))
    assert len(sources) == num_replicas, "an engine without a time"
    return sources


def _bound_track(replica: int, found: Attribution, own: slice) -> Source:
    order = np.argsort(found.times.start_s[own], kind="stable")
    start_s, end_s = found.times.start_s[own][order], found.times.end_s[own][order]
    by = found.bound_s[:, own].argmax(axis=0)[order]
    first = np.flatnonzero(np.diff(by, prepend=-1) != 0)
    last = np.append(first[1:], len(by)) - 1
    names = [NAMES[i] for i in by[first].tolist()]
    begins, ends = start_s[first].tolist(), end_s[last].tolist()

    def make(i: int) -> list[Event]:
        return [slice_(replica, BOUND_BY, names[i], begins[i], ends[i], {})]

    return Source(start_s[first], 1, make)
