"""Hands requests over from their arrival at a router to the queue of a replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dynosim.sim.cluster.admission import Admission
from dynosim.sim.cluster.pool import Pool
from dynosim.sim.cluster.replica_load import ReplicaLoad
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.router_queue import RouterQueue
from dynosim.sim.cluster.routers.base import Router
from dynosim.sim.engine.sequence import Sequence as Request
from dynosim.sim.refusal import Refusal


class Floor(Protocol):
    """What is around the routers: a clock, the replicas behind them, and the clients."""

    def now_s(self) -> float:
        """Returns the time."""
        ...

    def call_at(self, time_s: float, then: Callable[[], None], /) -> None:
        """Calls ``then`` at a time; used only where requests may wait."""
        ...

    def send(self, request: int, replica: int, waited_s: float, /) -> None:
        """Takes a request to a replica, after it waited so long at its router."""
        ...

    def turn_away(self, request: int, reason: Refusal, /) -> None:
        """Tells a client that its request was shed."""
        ...


@dataclass
class Desk:
    """One router: its policy, what it knows of every replica, and who waits at it."""

    router: Router
    loads: list[ReplicaLoad]
    queue: RouterQueue


class Dispatcher:
    """The routers of a pool.

    A request comes to one of the routers in turn. It goes to a replica at once, waits, or is shed.
    Who waits is tried again whenever a replica may have room: as answers and runs end.
    """

    def __init__(self, pool: Pool, requests: Requests, floor: Floor) -> None:
        self._routing = routing = pool.routing
        self._options = options = routing.options
        self._ranks = routing.ranks_apart
        self._requests = requests
        self._floor = floor
        self._admission = Admission(options)
        self._desks = [
            Desk(
                router,
                [
                    ReplicaLoad(number, replica, own, floor.now_s)
                    for number, (replica, own) in enumerate(
                        zip(pool.replicas, pool.engines_by_replica, strict=True)
                    )
                ],
                RouterQueue(options.router_queue_policy, requests),
            )
            for router in routing.routers
        ]
        self._arrivals = 0
        # Of requests in flight: who counts them, and how many of their tokens were not cached.
        self._counted: dict[int, tuple[ReplicaLoad, int]] = {}
        # Requests whose prompts another pool computes.
        self._computed_elsewhere: set[int] = set()
        # Of requests that are not sent yet: when their clients sent them, and when they came here.
        self._times_s: dict[int, tuple[float, float]] = {}
        deadline_ms = options.router_ttft_deadline_ms
        self._deadline_s = None if deadline_ms is None else deadline_ms * 1e-3
        if routing.inputs.index is not None:
            routing.inputs.index.tick_by(floor.now_s)
        for engine in pool.engines:
            engine.on_prefilled = self.prefilled

    # --- a request arrives --------------------------------------------------------------------

    def arrive(self, request: int, sent_s: float, *, computed_elsewhere: bool = False) -> None:
        """Takes in a request that its client sent at ``sent_s``.

        ``computed_elsewhere`` tells that another pool computes its prompt.
        """
        if computed_elsewhere:
            self._computed_elsewhere.add(request)
        desk = self._desks[self._arrivals % len(self._desks)]
        self._arrivals += 1
        if self._options.admits_all:
            self._send(desk, request, desk.loads)
            return
        self._times_s[request] = sent_s, self._floor.now_s()
        if not self._routing.may_wait:
            open_to, reason = self._open(desk)
            self._try(desk, request, open_to, reason)
            return
        desk.queue.push(request)
        self._serve(desk)
        if desk.queue.holds(request):
            self._let_wait(desk, request)

    def pass_on(self, request: int, *, computed_elsewhere: bool = False) -> None:
        """Sends a request on that another pool's routers have let in."""
        if computed_elsewhere:
            self._computed_elsewhere.add(request)
        desk = self._desks[self._arrivals % len(self._desks)]
        self._arrivals += 1
        self._send(desk, request, desk.loads)

    def _let_wait(self, desk: Desk, request: int) -> None:
        most = self._options.router_max_queue
        if most is not None and len(desk.queue) > most:
            desk.queue.remove(request)
            self._shed(request, Refusal.ROUTER_QUEUE)
        elif self._deadline_s is not None:
            due_s = self._times_s[request][0] + self._deadline_s
            self._floor.call_at(due_s, lambda: self._expire(desk, request))

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
            return desk.loads, Refusal.NONE
        closed_by = [self._admission.closed_by(load) for load in desk.loads]
        open_to = [load for load, reason in zip(desk.loads, closed_by, strict=True) if not reason]
        return open_to, next((reason for reason in closed_by if reason), Refusal.NONE)

    def _try(self, desk: Desk, request: int, open_to: list[ReplicaLoad], reason: Refusal) -> None:
        """Sends a request to one of some replicas, or sheds it."""
        if not open_to:
            self._shed(request, reason)
            return
        self._send(desk, request, open_to)

    # --- sent or shed -------------------------------------------------------------------------

    def _send(self, desk: Desk, request: int, open_to: list[ReplicaLoad]) -> None:
        """Sends a request to a replica of the router's choice, unless it would come too late."""
        load = open_to[desk.router.choose(request, open_to)]
        new_tokens = self._new_tokens(request, load)
        waited_s = 0.0
        if request in self._times_s:
            if self._misses_deadline(request, load, new_tokens):
                self._shed(request, Refusal.DEADLINE)
                return
            waited_s = self._floor.now_s() - self._times_s.pop(request)[1]
        tokens = self._requests.tokens(request)
        load.add(tokens, new_tokens, self._blocks(tokens))
        self._counted[request] = load, new_tokens
        self._floor.send(request, load.number, waited_s)

    def _new_tokens(self, request: int, load: ReplicaLoad) -> int:
        """Returns the prompt tokens that a replica has to compute, as far as is known."""
        index = self._routing.inputs.index
        tokens = self._requests.tokens(request)
        if request in self._computed_elsewhere:
            self._computed_elsewhere.remove(request)
            return 0
        if index is None:
            return tokens
        # The last token is always computed.
        return tokens - min(index.cached_tokens(request, load.number // self._ranks), tokens - 1)

    def _misses_deadline(self, request: int, load: ReplicaLoad, new_tokens: int) -> bool:
        if self._deadline_s is None:
            return False
        cached = self._requests.tokens(request) - new_tokens
        ttft_s = self._routing.inputs.times().ttft_s(load, new_tokens, cached)
        return self._floor.now_s() + ttft_s > self._times_s[request][0] + self._deadline_s

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._requests.block_size)

    def _shed(self, request: int, reason: Refusal) -> None:
        del self._times_s[request]
        self._floor.turn_away(request, reason)

    # --- answers come -------------------------------------------------------------------------

    def prefilled(self, seq: Request) -> None:
        """Takes a prompt off its replica's load."""
        load, new_tokens = self._counted[seq.index]
        load.prefilled(new_tokens)

    def finished(self, seq: Request) -> None:
        """Takes a finished request off its replica's load."""
        load, _ = self._counted.pop(seq.index)
        load.remove(seq.prompt_tokens, self._blocks(seq.prompt_tokens))
        if self._routing.inputs.prediction is not None:
            self._routing.inputs.prediction.answered(seq.output_tokens)
        if self._routing.may_wait:
            self.serve_waiting()
