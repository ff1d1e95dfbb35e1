"""Prefill and decode replicas on one clock, and prompts' KV caches on their way between them.

The life of a request, from hand to hand::

    _route ── short prompt ──────────────> a decode replica computes all of it
       │
       ├─ KV leaves when the prompt is complete:  _prefill > _on_prefilled > _expect > _on_reserved
       └─ KV leaves while it is being computed:   _expect > _on_reserved > _prefill > _on_prefilled
                                                                                │
    decode replica <── _on_arrived <── all parts have come <── _send <──────────┘

Prefill replicas keep a request's blocks until its KV has come; decode replicas take blocks for
all of a prompt before any of it is sent (:mod:`dynosim.sim.engine.staging`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import partial

from dynosim.hardware_models.kv_transfer import KvTransfer
from dynosim.sim.cluster.fabric import Fabric, Link
from dynosim.sim.cluster.frontend import LiveFrontend
from dynosim.sim.cluster.replica import Replica
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.routers.base import Router
from dynosim.sim.cluster.together import Together
from dynosim.sim.cluster.worker import Worker
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.results import Recorder


@dataclass(frozen=True, kw_only=True)
class PrefillPool:
    """The replicas that compute prompts of ``local_below_tokens`` or more, and their router."""

    engines: Items[Replica]
    router: Router
    requests: Requests
    transfer: KvTransfer
    local_below_tokens: int = 0


@dataclass(slots=True)
class Journey:
    """A request on its way: its two sequences, and how much of its KV is where.

    ``sent_tokens`` are those whose KV is under way, has come, or was at the decode replica from
    the first. ``num_parts`` are the parts under way.
    """

    seq: Sequence | None = None
    prompt: Sequence | None = None
    prefill: int = -1
    decode: int = -1
    sent_tokens: int = 0
    num_parts: int = 0
    prefilled_s: float = math.nan


class Disaggregated(Together):
    """One run over two pools; the plain arguments are those of the decode pool.

    ``out`` and ``into`` are what each prefill replica sends over, and each decode replica receives.
    """

    def __init__(
        self,
        engines: Items[Replica],
        router: Router,
        requests: Requests,
        recorder: Recorder,
        frontend: LiveFrontend,
        pool: PrefillPool,
    ) -> None:
        super().__init__(engines, router, requests, recorder, frontend)
        transfer = pool.transfer
        self.out = [Link(f"prefill {i}", transfer.egress_bytes_s) for i in range(len(pool.engines))]
        self.into = [Link(f"decode {i}", transfer.ingress_bytes_s) for i in range(len(engines))]
        self._pool = pool
        self._transfer = transfer
        self._fabric = Fabric(self._env)
        self._journeys: dict[int, Journey] = {}
        self._prefill_workers = [
            self._prefill_worker(number, engine) for number, engine in enumerate(pool.engines)
        ]
        for engine in engines:
            engine.expect_kv(self._on_reserved)

    def _prefill_worker(self, number: int, engine: Replica) -> Worker:
        def on_step(end_s: float) -> None:
            if self._transfer.overlap != "none":
                self._on_step(number, end_s)

        return Worker(self._env, engine, self._on_prefilled, self._horizon, on_step)

    def _horizon(self) -> float:
        """Returns that anything may concern an engine at any time."""
        return -math.inf

    # --- from hand to hand --------------------------------------------------------------------

    def _route(self, index: int) -> None:
        prompt_tokens = int(self._recorder.workload.input_tokens[index])
        if prompt_tokens < self._pool.local_below_tokens:
            super()._route(index)
            return
        self._journeys[index] = journey = Journey()
        if self._transfer.overlap == "none":
            self._prefill(index, journey)
        else:
            self._expect(index, journey)

    def _prefill(self, index: int, journey: Journey) -> None:
        """Sends the prompt to a prefill replica."""
        chosen = self._pool.router.choose(index, self._prefill_workers)
        journey.prefill = self._recorder.prefill_replica[index] = chosen
        self._prefill_workers[chosen].submit(self._pool.requests.prompt(index))

    def _on_prefilled(self, prompt: Sequence, time_s: float) -> None:
        """Takes over a prompt that is complete, its first token sampled."""
        journey = self._journeys[prompt.index]
        journey.prompt = prompt
        journey.prefilled_s = time_s
        if journey.seq is None:
            self._expect(prompt.index, journey)
        else:
            self._send(prompt.index, journey, prompt.target, is_last=True)

    def _expect(self, index: int, journey: Journey) -> None:
        """Has a decode replica take blocks for a prompt."""
        chosen = self._router.choose(index, self._workers)
        journey.decode = self._recorder.replica[index] = chosen
        journey.seq = self._requests.sequence(index)
        self._workers[chosen].expect(journey.seq)

    def _on_reserved(self, seq: Sequence, time_s: float) -> None:
        """Has KV sent to a decode replica that has the blocks, or what is to be sent computed."""
        journey = self._journeys[seq.index]
        journey.sent_tokens = seq.computed
        if journey.prompt is None:
            self._prefill(seq.index, journey)
        else:
            self._send(seq.index, journey, journey.prompt.target, is_last=True)

    def _on_arrived(self, index: int, journey: Journey) -> None:
        """Lets the decode replica go on with a prompt once its last part has come."""
        journey.num_parts -= 1
        prompt, seq = journey.prompt, journey.seq
        if journey.num_parts or prompt is None or seq is None:
            return
        del self._journeys[index]
        self._recorder.transfer_s[index] = self._env.now - journey.prefilled_s
        seq.scheduled_s = prompt.scheduled_s
        seq.cached_tokens = prompt.cached_tokens
        seq.preemptions += prompt.preemptions
        self._prefill_workers[journey.prefill].free(prompt)
        with_token = self._transfer.first_token == "handed_over"
        self._workers[journey.decode].load(seq, with_token=with_token)

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
        assert arrived.callbacks is not None
        arrived.callbacks.append(lambda _: self._on_arrived(index, journey))

    def _after(self, time_s: float, then: Callable[[], None]) -> None:
        self._at(time_s, self._env.now, then)
