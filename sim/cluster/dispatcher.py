"""Hands requests over from their arrival at a router to the queue of a replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import simpy

from dynosim.sim.cluster.admission import Admission
from dynosim.sim.cluster.replica_load import ReplicaLoad
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.router_queue import RouterQueue
from dynosim.sim.cluster.routers.base import Router
from dynosim.sim.cluster.routing import Routing
from dynosim.sim.cluster.worker import Worker
from dynosim.sim.engine.engine import Engine
from dynosim.sim.engine.sequence import Sequence as Request
from dynosim.sim.refusal import Refusal

Send = Callable[[int, int, float], None]
Shed = Callable[[int, Refusal, float], None]


@dataclass
class Desk:
    """One router: its policy, what it knows of every replica, which are there, and who waits."""

    router: Router
    loads: list[ReplicaLoad]
    there: list[ReplicaLoad]
    queue: RouterQueue


@dataclass(slots=True)
class Debt:
    """What a request in flight adds to a replica's load."""

    load: ReplicaLoad
    prefill_tokens: int
    blocks: int
    seq: Request


class Dispatcher:
    """Routers in front of workers.

    A request comes to one of the routers in turn. It goes to a replica at once, waits, or is shed;
    ``on_send`` is told (request, replica, seconds waited) of those that go, ``on_shed`` (request,
    reason, time) of the others. Who
    waits is tried again whenever a replica may have room: as answers and runs end. ``is_live``
    tells that this, or the time at which caches change, matters, so that no engine may run ahead
    of the clock.
    """

    def __init__(
        self,
        env: simpy.Environment,
        routing: Routing,
        requests: Requests,
        on_send: Send,
        on_shed: Shed,
    ) -> None:
        self._env = env
        self._routing = routing
        self._options = options = routing.options
        self._ranks = routing.ranks_apart
        self._requests = requests
        self._on_send = on_send
        self._on_shed = on_shed
        self._admission = Admission(options)
        self._desks: list[Desk] = []
        self._workers: Sequence[Worker] = ()
        self._arrivals = 0
        self._debts: dict[int, Debt] = {}
        # Of requests that are not sent yet: when their clients sent them, and when they came here.
        self._times_s: dict[int, tuple[float, float]] = {}
        deadline_ms = options.router_ttft_deadline_ms
        self._deadline_s = None if deadline_ms is None else deadline_ms * 1e-3
        self.may_wait = options.has_thresholds and options.router_overload == "wait"
        self.is_live = self.may_wait or options.router_event_lag_s > 0.0

    def connect(self, workers: Sequence[Worker], engines: Sequence[Sequence[Engine]]) -> None:
        """Begins to route to workers, of which each drives some engines."""
        self._workers = workers
        for router in self._routing.routers:
            loads = [
                ReplicaLoad(number, worker, own, lambda: self._env.now)
                for number, (worker, own) in enumerate(zip(workers, engines, strict=True))
            ]
            queue = RouterQueue(self._options.router_queue_policy, self._requests)
            self._desks.append(Desk(router, loads, loads, queue))
        if self._routing.inputs.index is not None:
            self._routing.inputs.index.tick_by(lambda: self._env.now)
        for engine in [engine for own in engines for engine in own]:
            engine.on_prefilled = self.prefilled

    # --- a request arrives --------------------------------------------------------------------

    def arrive(self, request: int, sent_s: float) -> None:
        """Takes in a request that its client sent at ``sent_s``."""
        desk = self._desks[self._arrivals % len(self._desks)]
        self._arrivals += 1
        if self._options.admits_all and desk.there:
            self._send(desk, request, desk.there)
            return
        self._times_s[request] = sent_s, self._env.now
        if not self.may_wait and desk.there:
            open_to, reason = self._open(desk)
            self._try(desk, request, open_to, reason)
            return
        desk.queue.push(request)
        self._serve(desk)
        if desk.queue.holds(request):
            self._let_wait(desk, request)

    def _let_wait(self, desk: Desk, request: int) -> None:
        most = self._options.router_max_queue
        if most is not None and len(desk.queue) > most:
            desk.queue.remove(request)
            self._shed(request, Refusal.ROUTER_QUEUE)
        elif self._deadline_s is not None:
            left_s = self._times_s[request][0] + self._deadline_s - self._env.now
            expiry = self._env.timeout(max(left_s, 0.0))
            assert expiry.callbacks is not None
            expiry.callbacks.append(lambda _: self._expire(desk, request))

    def _expire(self, desk: Desk, request: int) -> None:
        if desk.queue.remove(request):
            self._shed(request, Refusal.DEADLINE)

    # --- replicas have room -------------------------------------------------------------------

    def serve_waiting(self) -> None:
        """Tries those who wait again."""
        for desk in self._desks:
            if desk.queue:
                self._serve(desk)

    def _serve(self, desk: Desk) -> None:
        queue = desk.queue
        while queue:
            open_to, _ = self._open(desk)
            if not open_to:
                return
            request = queue.first()
            queue.remove(request)
            self._try(desk, request, open_to, Refusal.NONE)

    def _open(self, desk: Desk) -> tuple[list[ReplicaLoad], Refusal]:
        """Returns the replicas that take requests, and what closes the first of the others."""
        if not self._options.has_thresholds:
            return desk.there, Refusal.NONE
        closed_by = [self._admission.closed_by(load) for load in desk.there]
        open_to = [load for load, reason in zip(desk.there, closed_by, strict=True) if not reason]
        return open_to, next((reason for reason in closed_by if reason), Refusal.NONE)

    def _try(self, desk: Desk, request: int, open_to: list[ReplicaLoad], reason: Refusal) -> None:
        """Sends a request to one of some replicas, or sheds it."""
        if not open_to:
            self._shed(request, reason)
            return
        self._send(desk, request, open_to)

    # --- sent or shed -------------------------------------------------------------------------

    def _send(self, desk: Desk, request: int, open_to: list[ReplicaLoad]) -> None:
        load = open_to[desk.router.choose(request, open_to)]
        requests = self._requests
        tokens = requests.tokens(request)
        index = self._routing.inputs.index
        cached = 0
        if index is not None:
            cached = min(index.cached_tokens(request, load.number // self._ranks), tokens - 1)
        waited_s = 0.0
        if request in self._times_s:
            if self._misses_deadline(request, load, tokens - cached, cached):
                self._shed(request, Refusal.DEADLINE)
                return
            waited_s = self._env.now - self._times_s.pop(request)[1]
        blocks = -(-tokens // requests.block_size)
        load.outstanding += 1
        load.prefill_tokens += tokens - cached
        load.decode_blocks += blocks
        seq = requests.sequence(request)
        self._debts[request] = Debt(load, tokens - cached, blocks, seq)
        self._on_send(request, load.number, waited_s)
        self._workers[load.number].submit(seq)

    def _misses_deadline(self, request: int, load: ReplicaLoad, new: int, cached: int) -> bool:
        if self._deadline_s is None:
            return False
        due_s = self._times_s[request][0] + self._deadline_s
        return self._env.now + self._routing.inputs.times().ttft_s(load, new, cached) > due_s

    def _shed(self, request: int, reason: Refusal) -> None:
        del self._times_s[request]
        self._on_shed(request, reason, self._env.now)

    # --- answers come -------------------------------------------------------------------------

    def prefilled(self, seq: Request) -> bool:
        """Takes a prompt that is computed off its replica's load; returns whether it is wanted.

        An attempt that was given up may still be computed, to the end of its step.
        """
        debt = self._debts.get(seq.index)
        if debt is None or debt.seq is not seq:
            return False
        debt.load.prefill_tokens -= debt.prefill_tokens
        debt.prefill_tokens = 0
        return True

    def finished(self, seq: Request) -> None:
        """Takes a finished request off its replica's load."""
        debt = self._debts.pop(seq.index)
        debt.load.outstanding -= 1
        debt.load.decode_blocks -= debt.blocks
        if self._routing.inputs.prediction is not None:
            self._routing.inputs.prediction.answered(seq.output_tokens)
        if self.may_wait:
            self.serve_waiting()

    # --- replicas and requests that go away ---------------------------------------------------

    @property
    def held(self) -> int:
        """Requests that wait at the routers."""
        return sum(len(desk.queue) for desk in self._desks)

    def requests(self) -> list[int]:
        """Returns the requests that are at replicas, in order of their numbers."""
        return sorted(self._debts)

    def requests_at(self, number: int) -> list[int]:
        """Returns the requests that are at one replica, in order of their numbers."""
        return sorted(r for r, debt in self._debts.items() if debt.load.number == number)

    def route_to(self, numbers: Sequence[int]) -> None:
        """Makes these replicas those that there are; with none of them, requests wait."""
        for desk in self._desks:
            desk.there = [desk.loads[number] for number in numbers]
        if numbers:
            self.serve_waiting()

    def take_back(self, request: int) -> Request | None:
        """Gives up a request wherever it is; returns what its replica must let go of, if any."""
        if self._times_s.pop(request, None) is not None:
            for desk in self._desks:
                desk.queue.remove(request)
            return None
        debt = self._debts.pop(request, None)
        if debt is None:
            return None
        debt.load.outstanding -= 1
        debt.load.prefill_tokens -= debt.prefill_tokens
        debt.load.decode_blocks -= debt.blocks
        return debt.seq
