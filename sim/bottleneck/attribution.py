"""Which resource held a run back, when, and how busy each was; read from its logs alone.

While requests wait at an engine, it is bound by what kept the next of them out (batch slots, the
step's tokens, KV blocks). While none waits, by what its steps take their time for (arithmetic,
memory bandwidth, links, launches, host). Where the API servers are behind, by those; where it has
nothing to compute, by what keeps work from it: KV that is still being loaded, the router's queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.hardware_models.timing.step_parts import PARTS, StepShapes
from dynosim.sim.bottleneck.frontend_use import intake_queue, late_share
from dynosim.sim.bottleneck.held import Held, held, logged
from dynosim.sim.bottleneck.intervals import Intervals, union
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.cluster.scaling.states import ScalingLog, State
from dynosim.sim.engine import holds
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.step_log import Steps
from dynosim.sim.results import HandOvers, ReplicaLog, RunResult
from dynosim.sim.tiers.result import TierResult

_ROUNDING = 1e-9
IDLE = "no requests"
API_SERVERS = "API servers"
KV_LOADS = "KV loads"
ROUTER = "router queue"
WAITS = (*holds.NAMES, KV_LOADS, "step in progress")
"""What requests wait for at an engine; the last is what any would, however wide all else is."""
STARTING = "replica starting"
OFF = "replica off"
NAMES = (*PARTS, *holds.NAMES, API_SERVERS, KV_LOADS, STARTING, OFF, ROUTER, IDLE)
"""Whatever a run can be bound by, in words."""
_API_SERVERS, _KV_LOADS, _STARTING, _OFF, _ROUTER, _IDLE = range(len(NAMES) - 6, len(NAMES))


class Parts(Protocol):
    """Splits steps; :class:`~dynosim.hardware_models.timing.step_parts.StepParts` is one."""

    def seconds(self, shapes: StepShapes, /) -> FloatArray:
        """Returns seconds of each part of each step, shape (len(PARTS), steps)."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Attribution:
    """What bound the engines of a run.

    ``times`` are the runs of steps of each ``engine`` and the gaps between them, and ``bound_s``,
    shape (len(NAMES), len(times)), the seconds of each by what bound it: they sum to its length.
    ``step_s``, shape (len(PARTS),), is what all steps took their time for, whoever waited;
    ``waiting_request_s``, shape (len(WAITS),), the time that requests waited at engines until they
    first entered, by what kept the next one out meanwhile. Intervals of several engines follow each
    other.
    """

    times: Intervals
    engine: IntArray
    bound_s: FloatArray
    step_s: FloatArray
    waiting_request_s: FloatArray

    @property
    def shares(self) -> dict[str, float]:
        """The share of the engines' time bound by each name, largest first; they sum to 1."""
        return _shares(NAMES, self.bound_s.sum(axis=1))

    @property
    def step_shares(self) -> dict[str, float]:
        """What steps took their time for, as shares of it, largest first."""
        return _shares(PARTS, self.step_s)

    def over_time(self, bins: int) -> list[tuple[float, float, dict[str, float]]]:
        """Returns (start_s, end_s, shares) of ``bins`` equal parts of the run, in order."""
        edges = np.linspace(self.times.start_s.min(), self.times.end_s.max(), bins + 1)
        lengths = self.times.end_s - self.times.start_s
        found = []
        for start_s, end_s in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            inside = np.minimum(self.times.end_s, end_s) - np.maximum(self.times.start_s, start_s)
            part = np.divide(np.maximum(inside, 0.0), lengths)
            found.append((start_s, end_s, _shares(NAMES, self.bound_s @ part)))
        return found


def attribute(
    result: RunResult, parts: Parts, limits: EngineLimits, frontend: Frontend
) -> Attribution | None:
    """Returns what bound the run; None where no request was served."""
    if not result.completed.any():
        return None
    router = union(result.arrived_s, result.routed_s)
    outside = ((_API_SERVERS, intake_queue(result, frontend)), (_ROUTER, router))
    engines = []
    for number, log in enumerate(result.replicas):
        # With two pools, requests enter elsewhere: only logs tell who was kept out here.
        is_split = result.hand_overs is not None
        found = logged(log.steps) if is_split else held(result, number, limits)
        away = _away(result.scaling, number, len(result.replicas))
        causes = (*away, (_KV_LOADS, _loads(result.tiers, number)), *outside)
        engine = _engine(log, found, parts, causes, span_s(result))
        waits = np.zeros(len(WAITS)) if is_split else _waiting_s(result, number, found)
        engines.append((*engine, waits))
    return _joined(engines)


def attribute_pool(hand_overs: HandOvers, parts: Parts, span_s: tuple[float, float]) -> Attribution:
    """Returns what bound engines that hand their requests over, as their logs alone tell."""
    nothing = np.zeros(len(WAITS))
    engines = []
    for number, log in enumerate(hand_overs.replicas):
        away = _away(hand_overs.scaling, number, len(hand_overs.replicas))
        causes = (*away, (_KV_LOADS, _loads(hand_overs.tiers, number)))
        engines.append((*_engine(log, logged(log.steps), parts, causes, span_s), nothing))
    return _joined(engines)


def span_s(result: RunResult) -> tuple[float, float]:
    """Returns when the first request was sent and when the last answer was complete."""
    done = result.completed
    return float(result.sent_s[done].min()), float(result.finish_s[done].max())


def _joined(engines: list[tuple[Intervals, FloatArray, FloatArray, FloatArray]]) -> Attribution:
    times, bound_s, step_s, waiting_s = zip(*engines, strict=True)
    return Attribution(
        times=Intervals(*(np.concatenate(column) for column in zip(*times, strict=True))),
        engine=np.repeat(np.arange(len(engines)), [len(own.start_s) for own in times]),
        bound_s=np.concatenate(bound_s, axis=1),
        step_s=np.sum(step_s, axis=0),
        waiting_request_s=np.sum(waiting_s, axis=0),
    )


def _engine(
    log: ReplicaLog,
    found: Held,
    parts: Parts,
    outside: tuple[tuple[int, Intervals], ...],
    span_s: tuple[float, float],
) -> tuple[Intervals, FloatArray, FloatArray]:
    """Returns one engine's intervals, what bound each, and what its steps took.

    ``outside`` is what keeps work from it, and when.
    """
    steps, duration_s = log.steps, log.steps.durations_s
    runs = _runs(steps)
    step_s = parts.seconds(shapes(steps)) * steps.counts
    by, share = found
    late = late_share(log)
    bound_s = np.zeros((len(NAMES), len(duration_s)))
    bound_s[: len(PARTS)] = step_s * (1.0 - share) * (1.0 - late)
    bound_s[len(PARTS) + by, np.arange(len(by))] = duration_s * share * (1.0 - late)
    bound_s[_API_SERVERS] = duration_s * late
    gaps = runs.gaps(*span_s)
    times = Intervals(*(np.concatenate(pair) for pair in zip(runs, gaps, strict=True)))
    bound_s = np.concatenate([bound_s, _idle_s(gaps, outside)], axis=1)
    return times, bound_s, step_s.sum(axis=1)


def _runs(steps: Steps) -> Intervals:
    return Intervals(steps.start_s, steps.start_s + steps.durations_s)


def _idle_s(gaps: Intervals, outside: tuple[tuple[int, Intervals], ...]) -> FloatArray:
    """Returns what kept work from an engine in each gap between its runs, by :data:`NAMES`."""
    seconds = np.zeros((len(NAMES), len(gaps.start_s)))
    left_s = gaps.end_s - gaps.start_s
    for cause, times in outside:
        # Of what overlaps, the first counts.
        seconds[cause] = np.minimum(times.within(gaps), left_s)
        left_s = left_s - seconds[cause]
    seconds[_IDLE] = left_s
    return seconds


def _away(
    log: ScalingLog | None, engine: int, num_engines: int
) -> tuple[tuple[int, Intervals], ...]:
    """Returns when the replica of an engine was not there: starting, or for any other reason."""
    if log is None:
        return ()
    replica = engine // (num_engines // log.num_replicas)
    rows = log.changes[log.changes[:, 1] == replica]
    start_s = np.append(0.0, rows[:, 0])
    end_s = np.append(rows[:, 0], log.end_s)
    state = np.append(float(State.OFF), rows[:, 2])
    is_starting = state == State.STARTING
    is_off = ~is_starting & (state != State.READY) & (state != State.DRAINING)
    return (
        (_STARTING, union(start_s[is_starting], end_s[is_starting])),
        (_OFF, union(start_s[is_off], end_s[is_off])),
    )


def _loads(loads: TierResult | None, replica: int) -> Intervals:
    """Returns when a replica was loading KV for any request."""
    return union(*_loads_one_by_one(loads, replica))


def _waiting_s(result: RunResult, replica: int, found: Held) -> FloatArray:
    """Returns how long an engine's requests waited until they first entered, by :data:`WAITS`.

    The time of requests whose KV was coming is that, not what held the others back.
    """
    own = result.completed & (result.replica == replica)
    queued = Intervals(result.routed_s[own], result.scheduled_s[own])
    coming = _loads_one_by_one(result.tiers, replica)
    runs = _runs(result.replicas[replica].steps)
    from_s = runs.end_s - found.share * (runs.end_s - runs.start_s)
    waiting_s = np.zeros(len(WAITS))
    for hold in range(len(holds.NAMES)):
        which = (found.share > 0.0) & (found.by == hold)
        times = Intervals(from_s[which], runs.end_s[which])
        waiting_s[hold] = times.within(queued).sum() - times.within(coming).sum()
    waiting_s[len(holds.NAMES)] = coming.total_s
    waiting_s[-1] = max(queued.total_s - waiting_s.sum(), 0.0)
    return waiting_s


def _loads_one_by_one(loads: TierResult | None, replica: int) -> Intervals:
    """Returns when the KV of each request was coming to a replica; they overlap."""
    if loads is None:
        return Intervals(np.empty(0), np.empty(0))
    own = loads.replica == replica
    return Intervals(loads.start_s[own], loads.end_s[own])


def shapes(steps: Steps) -> StepShapes:
    """Returns the middle step of every run as what it computed."""
    num_decode = np.where(steps.is_pause, 0, steps.num_decode)
    half = 0.5 * (steps.counts - 1.0)
    return StepShapes(
        seconds=steps.dt_s + half * steps.growth_s,
        prefill_tokens=steps.prefill_tokens,
        prefill_attention_s=steps.prefill_attention_s,
        num_decode=num_decode,
        num_logits=num_decode + steps.num_first,
        context_tokens=np.where(
            num_decode > 0, steps.context_tokens + (1.0 + half) * num_decode, 0.0
        ),
    )


def _shares(names: tuple[str, ...], seconds: FloatArray) -> dict[str, float]:
    total_s = float(seconds.sum())
    found: Mapping[str, float] = dict(zip(names, (seconds / total_s).tolist(), strict=True))
    ranked = sorted(found.items(), key=lambda item: -item[1])
    return {name: share for name, share in ranked if share > _ROUNDING}
