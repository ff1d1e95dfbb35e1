"""What happened to every request and in every step; metrics come from here and nowhere else."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.cluster.scaling.states import ScalingLog
from dynosim.sim.engine.drafting import Drafting
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.step_log import StepLog, Steps
from dynosim.sim.engine.step_times import StepTimes
from dynosim.sim.refusal import Refusal
from dynosim.sim.stream_events import event_tokens
from dynosim.sim.tiers.result import TierResult
from dynosim.sim.workload.columns import Workload

if TYPE_CHECKING:
    from dynosim.sim.cluster.fabric import Link


@dataclass(frozen=True, kw_only=True)
class ReplicaLog:
    """One replica's steps, as its engine ran them and as they were ``delivered`` to clients.

    ``stints`` has (request, first_step, end_step) rows: the request got one token at the end of
    each step in [first_step, end_step) but those pauses that are not its first.

    With speculative decoding, all steps of a stint but its first verify drafts and may give several
    tokens: ``verifications`` has (request, tokens, steps) rows. Requests ``handed_over`` came with
    their first token, which clients got at ``handed_over_s``, before their first stint.
    """

    steps: Steps
    delivered: StepTimes
    stints: IntArray
    num_blocks: int
    verifications: IntArray = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    handed_over: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    handed_over_s: FloatArray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, kw_only=True)
class LinkUse:
    """What one link carried, and for how long it carried anything."""

    name: str
    bandwidth_bytes_s: float
    carried_bytes: float
    busy_s: float


@dataclass(frozen=True, kw_only=True)
class HandOvers:
    """Prompts that a prefill pool computed: a column element a request, and the pool's replicas.

    ``replica`` is the prefill replica, -1 where the decode pool did all of it; ``transfer_s``
    passed from the prompt's end there to the arrival of all its KV (0 where there was none). The
    first token that a prefill replica samples is in its log; clients see it only where it is among
    those ``handed_over`` to a decode replica. ``scaling`` is what became of prefill replicas that
    came and went, ``tiers`` what lay below their GPUs' memory.
    """

    replica: IntArray
    transfer_s: FloatArray
    replicas: tuple[ReplicaLog, ...]
    links: tuple[LinkUse, ...]
    scaling: ScalingLog | None = None
    tiers: TierResult | None = None


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One simulated run, a column element a request, in the workload's order.

    Times are seconds from the start of the run, NaN for refused requests, whose ``replica`` is -1
    and of which ``refusal`` tells why, a :class:`~dynosim.sim.refusal.Refusal`; those that were
    shed have been sent, and were told at ``refused_s``. ``routed_s`` is when a request left the
    router, where it had arrived at ``arrived_s``. ``cached_tokens`` counts prompt tokens found in
    the prefix cache when the request was first scheduled; what a preempted request finds again is
    not in it. ``frontend_s`` is what API servers added to the time to the first token: before the
    request arrived, and between the engine and the client, who is where first tokens and finishes
    are timed. ``drafting`` is how the engines speculated, None where they did not; ``tiers`` is
    what lay below the GPUs' memory, if anything did, and ``scaling`` what became of replicas that
    came and went; attempts that failed are part of the time until ``routed_s``. Users asked at
    ``wanted_s``; until ``sent_s`` they waited for a slot of their client, or of all.
    ``wasted_tokens`` were generated for attempts that came to nothing. Whoever reads a stream sees
    its tokens after the first ``stream_interval`` at a time.
    """

    workload: Workload
    wanted_s: FloatArray
    sent_s: FloatArray
    arrived_s: FloatArray
    routed_s: FloatArray
    scheduled_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    frontend_s: FloatArray
    refused_s: FloatArray
    refusal: IntArray
    replica: IntArray
    cached_tokens: IntArray
    preemptions: IntArray
    wasted_tokens: IntArray
    replicas: tuple[ReplicaLog, ...]
    stream_interval: int = 1
    drafting: Drafting | None = None
    scaling: ScalingLog | None = None
    tiers: TierResult | None = None
    hand_overs: HandOvers | None = None

    @property
    def completed(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which requests got all their tokens."""
        return np.asarray(~np.isnan(self.finish_s))

    @property
    def reached_s(self) -> FloatArray:
        """When every request had reached the server."""
        network = self.workload.network
        if network is None:
            return self.sent_s
        return self.sent_s + network.up_s(self.workload.input_tokens)

    @property
    def shed(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which requests were sent and turned away, or lost."""
        return np.asarray((self.refusal > Refusal.TOO_LONG) & ~self.cancelled)

    @property
    def cancelled(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Of which requests the users went away while the answers came."""
        return np.asarray(self.refusal == Refusal.CANCELLED)

    def token_times_s(self, request: int) -> FloatArray:
        """Returns when the client had each of the request's tokens; those of a step all at once.

        So do those that were written together.
        """
        network = self.workload.network
        written_s = self._written_s(request)
        if self.stream_interval > 1:
            ends = event_tokens(len(written_s), self.stream_interval)
            written_s = np.repeat(written_s[ends - 1], np.diff(ends, prepend=0))
        return written_s + (0.0 if network is None else network.down_s)

    def _written_s(self, request: int) -> FloatArray:
        """Returns when the server had written each of the request's tokens."""
        log = self.replicas[int(self.replica[request])]
        first_s: FloatArray = log.handed_over_s[log.handed_over == request]
        own = log.stints[log.stints[:, 0] == request]
        if not len(own):
            return first_s
        steps = [log.steps.token_steps(first, end) for _, first, end in own.tolist()]
        times_s = np.concatenate([first_s, log.delivered.ends_s(np.concatenate(steps))])
        if self.drafting is None:
            return times_s
        lengths = [len(own_steps) for own_steps in steps]
        lengths[0] += len(first_s)
        wanted = int(self.workload.output_tokens[request])
        return np.repeat(times_s, _tokens_by_step(self.drafting, request, wanted, lengths))


class Wasteful(Protocol):
    """Who generated tokens for attempts that came to nothing: by request."""

    @property
    def wasted(self) -> Mapping[int, int]:
        """Tokens by the requests' numbers."""
        ...


def _tokens_by_step(
    drafting: Drafting, request: int, wanted: int, lengths: Iterable[int]
) -> IntArray:
    """Returns the tokens of each step of stints that have so many steps."""
    parts = []
    emitted = 0
    for length in lengths:
        emitted += 1
        verified = np.empty(0, dtype=np.int64)
        if length > 1:
            verified = drafting.tokens(request, emitted, wanted - emitted)[: length - 1]
        parts += [np.ones(1, dtype=np.int64), verified]
        emitted += int(verified.sum())
    return np.concatenate(parts)


class Recorder:
    """Collects a run's facts while it runs."""

    def __init__(self, workload: Workload) -> None:
        n = len(workload)
        self.workload = workload
        # Filled one by one, which is what `array` is fast at; in the end they are read as columns.
        self.wanted_s = array("d", [math.nan]) * n
        self.sent_s = array("d", [math.nan]) * n
        self.arrived_s = array("d", [math.nan]) * n
        self.replica = array("q", [-1]) * n
        self._routed_s = array("d", [math.nan]) * n
        self._refused_s = array("d", [math.nan]) * n
        self._refusal = array("q", [Refusal.TOO_LONG]) * n
        self._scheduled_s = array("d", [math.nan]) * n
        self._finish_s = array("d", [math.nan]) * n
        self._cached_tokens = array("q", [0]) * n
        self._preemptions = array("q", [0]) * n
        self._wasted_tokens = np.zeros(n, dtype=np.int64)
        self.prefill_replica = array("q", [-1]) * n
        self.transfer_s = array("d", [0.0]) * n

    def send(
        self, requests: IntArray, frontend: Frontend, num_engines: int, frontend_s: float
    ) -> None:
        """Notes that ``requests`` are sent when the workload says, and when engines get them."""
        sent_s = self.workload.arrival_s[requests]
        reached_s = sent_s + self._up_s()[requests]
        entered_s = frontend.entered_s(reached_s, self.workload.input_tokens[requests], num_engines)
        _floats(self.sent_s)[requests] = _floats(self.wanted_s)[requests] = sent_s
        _floats(self.arrived_s)[requests] = entered_s + frontend_s

    def route(self, requests: IntArray, replicas: IntArray) -> None:
        """Notes which replica serves each of ``requests``, none of which waits at the router."""
        _ints(self.replica)[requests] = replicas
        _floats(self._routed_s)[requests] = _floats(self.arrived_s)[requests]

    def hand_over(self, index: int, replica: int, waited_s: float) -> None:
        """Notes that a request left the router for a replica."""
        self.replica[index] = replica
        self.leave_router(index, waited_s)

    def leave_router(self, index: int, waited_s: float) -> None:
        """Notes for how long a request waited at the router."""
        self._routed_s[index] = self.arrived_s[index] + waited_s

    def shed(self, index: int, reason: Refusal, time_s: float) -> None:
        """Notes that a request was turned away; raises AssertionError if it was answered before."""
        assert self.replica[index] < 0, f"request {index} was shed after it was sent"
        self._refusal[index] = reason
        self._refused_s[index] = time_s

    def take_back(self, index: int) -> None:
        """Notes that a request is no longer where it was handed over to."""
        self.replica[index] = self.prefill_replica[index] = -1
        self._routed_s[index] = math.nan
        self.transfer_s[index] = 0.0

    def waste(self, workers: Iterable[Wasteful]) -> None:
        """Notes the tokens that were generated for attempts that came to nothing."""
        for worker in workers:
            for request, tokens in worker.wasted.items():
                self._wasted_tokens[request] += tokens

    def record(self, seq: Sequence, time_s: float) -> None:
        """Notes that a request has all its tokens; raises AssertionError if it had before.

        In a closed loop that is when its client has them, else when they leave the engine.
        """
        index = seq.index
        assert self._finish_s[index] != self._finish_s[index], f"request {index} finished twice"
        self._finish_s[index] = time_s
        self._scheduled_s[index] = seq.scheduled_s
        self._cached_tokens[index] = seq.cached_tokens
        self._preemptions[index] = seq.preemptions

    def result(
        self,
        logs: list[StepLog],
        num_blocks: int,
        frontend: Frontend,
        drafting: Drafting | None = None,
        hand_overs: HandOvers | None = None,
    ) -> RunResult:
        """Returns the finished run; raises AssertionError unless every token is accounted for."""
        replicas = tuple(_replica_log(log, num_blocks, frontend) for log in logs)
        sent = _ints(self.replica) >= 0
        expected = np.where(sent, self.workload.output_tokens, 0)
        assert np.array_equal(self._tokens(replicas), expected), "tokens were lost or emitted twice"
        finish_s = _floats(self._finish_s)
        assert np.array_equal(~np.isnan(finish_s), sent), "a request was lost"
        refusal = np.where(sent, Refusal.NONE, _ints(self._refusal))
        was_sent = ~np.isnan(_floats(self.sent_s))
        assert np.array_equal(was_sent, refusal != Refusal.TOO_LONG), "a request got lost"
        sent_s, arrived_s = _floats(self.sent_s), _floats(self.arrived_s)
        before_s = arrived_s - sent_s - self._up_s()
        emitted_s = self._first_token_s([(log, log.steps) for log in replicas])
        if frontend.output_s:
            write_s = frontend.output_s / frontend.servers
            delivered = [(log, log.delivered) for log in replicas]
            first_token_s = self._first_token_s(delivered, write_s)
            if self.workload.is_open:
                finish_s = self._written_s(replicas, write_s)
        else:
            first_token_s = emitted_s
        after_s = first_token_s - emitted_s
        down_s = self._down_s
        return RunResult(
            workload=self.workload,
            wanted_s=_floats(self.wanted_s),
            sent_s=sent_s,
            arrived_s=arrived_s,
            routed_s=_floats(self._routed_s),
            scheduled_s=_floats(self._scheduled_s),
            first_token_s=first_token_s + down_s,
            finish_s=finish_s + down_s,
            frontend_s=before_s + after_s,
            refused_s=_floats(self._refused_s),
            refusal=refusal,
            replica=_ints(self.replica),
            cached_tokens=_ints(self._cached_tokens),
            preemptions=_ints(self._preemptions),
            wasted_tokens=self._wasted_tokens,
            replicas=replicas,
            stream_interval=frontend.stream_interval,
            drafting=drafting,
            hand_overs=hand_overs,
        )

    def _up_s(self) -> FloatArray:
        """Returns how long every request is on its way to the server."""
        network = self.workload.network
        if network is None:
            return np.zeros(len(self.workload))
        return network.up_s(self.workload.input_tokens)

    @property
    def _down_s(self) -> float:
        return 0.0 if self.workload.network is None else self.workload.network.down_s

    def hand_overs(
        self, logs: list[StepLog], num_blocks: int, links: Iterable[Link], frontend: Frontend
    ) -> HandOvers:
        """Returns what a prefill pool did; raises AssertionError where a prompt was lost."""
        replicas = tuple(_replica_log(log, num_blocks, frontend) for log in logs)
        replica = _ints(self.prefill_replica)
        done = np.zeros(len(self.workload), dtype=np.int64)
        for log in replicas:
            np.add.at(done, log.stints[:, 0], log.steps.num_tokens(*log.stints[:, 1:].T))
        assert np.array_equal(done, replica >= 0), "a prompt was lost or computed twice"
        uses = tuple(
            LinkUse(
                name=link.name,
                bandwidth_bytes_s=link.bandwidth_bytes_s,
                carried_bytes=link.carried_bytes,
                busy_s=link.busy_s,
            )
            for link in links
        )
        transfer_s = _floats(self.transfer_s)
        return HandOvers(replica=replica, transfer_s=transfer_s, replicas=replicas, links=uses)

    def _tokens(self, replicas: tuple[ReplicaLog, ...]) -> IntArray:
        """Returns how many tokens every request got."""
        tokens = np.zeros(len(self.workload), dtype=np.int64)
        for log in replicas:
            request, first, end = log.stints.T
            np.add.at(tokens, request, log.steps.num_tokens(first, end))
            verified, verified_tokens, steps = log.verifications.T
            np.add.at(tokens, verified, verified_tokens - steps)
            np.add.at(tokens, log.handed_over, 1)
        return tokens

    def _first_token_s(
        self, logs: list[tuple[ReplicaLog, StepTimes]], write_s: float = 0.0
    ) -> FloatArray:
        """Returns when every request's first stint had its first token; NaN without one.

        Tokens that came along with KV take ``write_s`` more.
        """
        times_s = np.full(len(self.workload), np.inf)
        for log, steps in logs:
            request, first, _ = log.stints.T
            np.minimum.at(times_s, request, steps.ends_s(first))
            np.minimum.at(times_s, log.handed_over, log.handed_over_s + write_s)
        return np.where(np.isinf(times_s), np.nan, times_s)

    def _written_s(self, replicas: tuple[ReplicaLog, ...], write_s: float) -> FloatArray:
        """Returns when clients had every request's last token; NaN without one."""
        times_s = np.full(len(self.workload), -np.inf)
        for log in replicas:
            request, _, end = log.stints.T
            np.maximum.at(times_s, request, log.delivered.ends_s(end - 1))
            np.maximum.at(times_s, log.handed_over, log.handed_over_s + write_s)
        return np.where(np.isinf(times_s), np.nan, times_s)


def _replica_log(log: StepLog, num_blocks: int, frontend: Frontend) -> ReplicaLog:
    steps = log.steps()
    log.forget_runs()
    handed_over, handed_over_s = log.hand_overs()
    return ReplicaLog(
        steps=steps,
        delivered=frontend.delivered(steps),
        stints=log.stints(),
        num_blocks=num_blocks,
        verifications=log.verifications(),
        handed_over=handed_over,
        handed_over_s=handed_over_s,
    )


def _floats(column: array[float]) -> FloatArray:
    """Returns a view, not a copy."""
    return np.frombuffer(column, dtype=np.float64)


def _ints(column: array[int]) -> IntArray:
    """Returns a view, not a copy."""
    return np.frombuffer(column, dtype=np.int64)
