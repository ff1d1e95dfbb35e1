"""Prefill and decode replicas on one clock, and prompts' KV caches on their way between them.

The life of a request, from hand to hand::

    _route ── short prompt ────────> send: a decode replica computes all of it
       │
       ├─ KV leaves when the prompt is complete:
       │      _send_to_prefill > _on_prefilled > send > _on_reserved ─┐
       └─ KV leaves while it is being computed:                       │
              send > _on_reserved > _send_to_prefill > _on_prefilled ─┤
                                                                      │
    decode replica <── _on_arrived <── all parts have come <── _send ─┘

Prefill replicas keep a request's blocks until its KV has come; decode replicas take blocks for
all of a prompt before any of it is sent (:mod:`dynosim.sim.engine.staging`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import simpy

from dynosim.hardware_models.kv_transfer import KvTransfer
from dynosim.sim.cluster.dispatcher import Dispatcher
from dynosim.sim.cluster.fabric import Fabric, Link
from dynosim.sim.cluster.frontend import LiveFrontend
from dynosim.sim.cluster.pool import Pool
from dynosim.sim.cluster.replica import Replica
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.together import Together
from dynosim.sim.cluster.worker import Worker
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import Recorder
from dynosim.sim.tiers.channel import Channel


@dataclass(frozen=True, kw_only=True)
class PrefillPool:
    """The replicas that compute prompts of ``local_below_tokens`` or more, and their routers."""

    pool: Pool
    requests: Requests
    transfer: KvTransfer
    local_below_tokens: int = 0


@dataclass(slots=True)
class Journey:
    """A request on its way: its two sequences, and how much of its KV is where.

    ``sent_tokens`` are those whose KV is under way, has come, or was at the decode replica from
    the first. ``num_parts`` are the parts under way, ``arrivals`` the events at which those that
    are on the wire will have come. Of one that ``is_over`` nothing more is sent or awaited.
    """

    seq: Sequence | None = None
    prompt: Sequence | None = None
    prefill: int = -1
    decode: int = -1
    sent_tokens: int = 0
    num_parts: int = 0
    prefilled_s: float = math.nan
    is_over: bool = False
    arrivals: list[simpy.Event] = field(default_factory=list)

    @property
    def is_prefilled(self) -> bool:
        """Whether the prompt is complete."""
        return self.prefilled_s == self.prefilled_s


@dataclass(frozen=True)
class PrefillFloor:
    """What is around the prefill pool's routers: all as at the other pool, but for the replicas."""

    run: Together
    send: Callable[[int, int, float], None]

    def now_s(self) -> float:
        """Returns the time."""
        return self.run.now_s()

    def call_at(self, time_s: float, then: Callable[[], None]) -> None:
        """Calls ``then`` at a time."""
        self.run.call_at(time_s, then)

    def turn_away(self, request: int, reason: Refusal) -> None:
        """Tells a client that its request was shed."""
        self.run.turn_away(request, reason)


class Disaggregated(Together):
    """One run over two pools; the plain arguments are those of the decode pool.

    Each pool has routers; admission is up to those of the pool that a request goes to first.

    ``out`` and ``into`` are what each prefill replica sends over, and each decode replica receives.
    """

    def __init__(
        self,
        pool: Pool,
        requests: Requests,
        recorder: Recorder,
        frontend: LiveFrontend,
        prefill: PrefillPool,
    ) -> None:
        super().__init__(pool, requests, recorder, frontend)
        transfer, replicas = prefill.transfer, prefill.pool.replicas
        self.out = [Link(f"prefill {i}", transfer.egress_bytes_s) for i in range(len(replicas))]
        self.into = [
            Link(f"decode {i}", transfer.ingress_bytes_s) for i in range(len(pool.replicas))
        ]
        self._prefill_requests = prefill.requests
        self._local_below_tokens = prefill.local_below_tokens
        self._transfer = transfer
        # Whether first tokens come along with KV.
        self._brings_token = transfer.first_token == "handed_over"
        self._fabric = Fabric(self._env)
        # What copies to and from KV tiers pass as well: each GPU's PCIe link.
        self._lanes_out = _lanes(prefill.pool, transfer, "out")
        self._lanes_into = _lanes(pool, transfer, "into")
        self._journeys: dict[int, Journey] = {}
        self._prefill_routers = Dispatcher(
            prefill.pool, prefill.requests, PrefillFloor(self, self._send_to_prefill)
        )
        is_live = prefill.pool.routing.may_wait
        on_run_end = self._prefill_routers.serve_waiting if is_live else None
        self._prefill_workers = [
            self._prefill_worker(number, replica, on_run_end)
            for number, replica in enumerate(replicas)
        ]
        for replica in pool.replicas:
            replica.expect_kv(self._on_reserved)

    def _prefill_worker(
        self, number: int, replica: Replica, on_run_end: Callable[[], None] | None
    ) -> Worker:
        def on_step(end_s: float) -> None:
            if self._transfer.overlap != "none":
                self._on_step(number, end_s)

        return Worker(self._env, replica, self._on_prefilled, on_step, on_run_end)

    # --- from hand to hand --------------------------------------------------------------------

    def _route(self, index: int) -> None:
        if self._is_local(index):
            super()._route(index)
            return
        self._journeys[index] = Journey()
        # The routers of the pool where a request goes first may let it wait, or shed it.
        sent_s = self._recorder.sent_s[index]
        if self._transfer.overlap == "none":
            self._prefill_routers.arrive(index, sent_s)
        else:
            self._dispatcher.arrive(index, sent_s, computed_elsewhere=True)

    def _is_local(self, index: int) -> bool:
        """Whether a prompt is short enough to be computed where it is decoded."""
        return int(self._recorder.workload.input_tokens[index]) < self._local_below_tokens

    def _send_to_prefill(self, request: int, replica: int, waited_s: float) -> None:
        """Queues a prompt at a prefill replica."""
        journey = self._journeys[request]
        if journey.decode < 0:
            self._recorder.leave_router(request, waited_s)
        journey.prefill = self._recorder.prefill_replica[request] = replica
        journey.prompt = self._prefill_requests.prompt(request)
        self._prefill_workers[replica].submit(journey.prompt)

    def _on_prefilled(self, prompt: Sequence, time_s: float) -> None:
        """Takes over a prompt that is complete, its first token sampled."""
        self._prefill_routers.finished(prompt)
        journey = self._journeys[prompt.index]
        journey.prefilled_s = time_s
        if journey.seq is None:
            self._dispatcher.pass_on(prompt.index, computed_elsewhere=True)
        else:
            self._send(prompt.index, journey, prompt.target, is_last=True)

    def send(self, request: int, replica: int, waited_s: float) -> None:
        """Has a decode replica take blocks for a prompt, or compute a short one."""
        journey = self._journeys.get(request)
        if journey is None:
            super().send(request, replica, waited_s)
            return
        if journey.prefill < 0:
            self._recorder.leave_router(request, waited_s)
        journey.decode = self._recorder.replica[request] = replica
        journey.seq = self._requests.sequence(request)
        self._workers[replica].expect(journey.seq)

    def turn_away(self, request: int, reason: Refusal) -> None:
        """Notes a request that was shed before it went anywhere."""
        self._journeys.pop(request, None)
        super().turn_away(request, reason)

    def _on_reserved(self, seq: Sequence, time_s: float) -> None:
        """Has KV sent to a decode replica that has the blocks, or what is to be sent computed."""
        journey = self._journeys[seq.index]
        journey.sent_tokens = seq.computed
        if journey.prompt is None:
            self._prefill_routers.pass_on(seq.index)
        else:
            self._send(seq.index, journey, journey.prompt.target, is_last=True)

    def _on_arrived(self, index: int, journey: Journey) -> None:
        """Notes that a part has come."""
        journey.num_parts -= 1
        if not journey.num_parts and journey.is_prefilled and not journey.is_over:
            self._complete(index, journey)

    def _complete(self, index: int, journey: Journey) -> None:
        """Lets the decode replica go on with a prompt whose last part has come."""
        prompt, seq = journey.prompt, journey.seq
        assert prompt is not None, "KV has come of a prompt that nobody computed"
        assert seq is not None, "KV has come where nobody expected it"
        del self._journeys[index]
        self._recorder.transfer_s[index] = self._env.now - journey.prefilled_s
        seq.scheduled_s = prompt.scheduled_s
        seq.cached_tokens = prompt.cached_tokens
        seq.preemptions += prompt.preemptions
        self._prefill_workers[journey.prefill].free(prompt)
        if self._brings_token:
            self._dispatcher.prefilled(seq)
        self._workers[journey.decode].load(seq, with_token=self._brings_token)

    # --- what is sent -------------------------------------------------------------------------

    def _on_step(self, number: int, end_s: float) -> None:
        """Sends what the step that begins will compute: layer by layer, or when it is over."""
        for prompt, chunk in self._prefill_workers[number].engine.chunks:
            tokens = prompt.computed + chunk
            journey = self._journeys[prompt.index]
            is_last = tokens == prompt.target
            if self._transfer.overlap == "layer":
                self._send_layers(prompt.index, journey, tokens, end_s)
            elif not is_last:
                self._after(end_s, partial(self._send, prompt.index, journey, tokens))

    def _send(self, index: int, journey: Journey, tokens: int, *, is_last: bool = False) -> None:
        """Sends the KV of a prompt's first ``tokens`` that has not been sent, all at once."""
        if journey.is_over:
            return
        num_bytes = self._unsent_bytes(journey, tokens)
        if is_last:
            num_bytes += self._transfer.size.state
        if num_bytes or is_last:
            self._dispatch(index, journey, num_bytes)

    def _send_layers(self, index: int, journey: Journey, tokens: int, end_s: float) -> None:
        """Sends all layers but the last while a step goes on, and the last one after it."""
        num_bytes = self._unsent_bytes(journey, tokens)
        if not num_bytes:
            return
        layers = self._transfer.layers
        before = num_bytes * (layers - 1) / layers
        if before:
            self._dispatch(index, journey, before, before / (end_s - self._env.now))
        journey.num_parts += 1

        def send_last() -> None:
            journey.num_parts -= 1
            if not journey.is_over:
                self._dispatch(index, journey, num_bytes - before)

        self._after(end_s, send_last)

    def _unsent_bytes(self, journey: Journey, tokens: int) -> float:
        """Returns the bytes of the tokens up to ``tokens`` that were not sent, and notes them."""
        size, sent = self._transfer.size, journey.sent_tokens
        journey.sent_tokens = max(sent, tokens)
        return size.of(journey.sent_tokens) - size.of(sent)

    def _dispatch(
        self, index: int, journey: Journey, num_bytes: float, most_bytes_s: float = math.inf
    ) -> None:
        """Puts bytes on the wire between the two replicas of a request."""
        journey.num_parts += 1
        arrived = self._fabric.send(
            (self.out[journey.prefill], self.into[journey.decode]),
            num_bytes,
            latency_s=self._transfer.latency_s,
            most_bytes_s=most_bytes_s,
        )
        journey.arrivals.append(arrived)
        lanes = (
            *self._lanes_out[journey.prefill : journey.prefill + 1],
            *self._lanes_into[journey.decode : journey.decode + 1],
        )
        passed_s = max([lane.carry(self._env.now, num_bytes) for lane in lanes], default=0.0)
        assert arrived.callbacks is not None
        arrived.callbacks.append(
            lambda _: self._after(passed_s, lambda: self._on_arrived(index, journey))
        )

    def _after(self, time_s: float, then: Callable[[], None]) -> None:
        self._at(time_s, self._env.now, then)


def _lanes(pool: Pool, transfer: KvTransfer, direction: Literal["out", "into"]) -> list[Channel]:
    """Returns the links that transfers of a pool share with copies to its KV tiers, if any."""
    if pool.tiers is None or not transfer.passes_pcie:
        return []
    return [stack.out if direction == "out" else stack.into for stack in pool.tiers.stacks]
