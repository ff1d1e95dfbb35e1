"""Hands requests over from their arrival at a router to the queue of a replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    """One router: its policy, what it knows of every replica, which are there, and who waits."""

    router: Router
    loads: list[ReplicaLoad]
    queue: RouterQueue
    there: list[ReplicaLoad] = field(init=False)

    def __post_init__(self) -> None:
        self.there = self.loads


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
        desk = self._desk_for(request, computed_elsewhere)
        if self._options.admits_all and desk.there:
            self._send(desk, request, desk.there)
            return
        self._times_s[request] = sent_s, self._floor.now_s()
        if not self._routing.may_wait and desk.there:
            self._send_or_shed(desk, request)
            return
        desk.queue.push(request)
        self._serve(desk)
        if desk.queue.holds(request):
            self._let_wait(desk, request)

    def pass_on(self, request: int, *, computed_elsewhere: bool = False) -> None:
        """Sends a request on that another pool's routers have let in."""
        desk = self._desk_for(request, computed_elsewhere)
        if desk.there:
            self._send(desk, request, desk.there)
        else:
            desk.queue.push(request)

    def _desk_for(self, request: int, computed_elsewhere: bool) -> Desk:
        if computed_elsewhere:
            self._computed_elsewhere.add(request)
        desk = self._desks[self._arrivals % len(self._desks)]
        self._arrivals += 1
        return desk

    def _send_or_shed(self, desk: Desk, request: int) -> None:
        open_to, closed_by = self._open(desk)
        if open_to:
            self._send(desk, request, open_to)
        else:
            self._shed(request, closed_by)

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
            self._send(desk, request, open_to)

    def _open(self, desk: Desk) -> tuple[list[ReplicaLoad], Refusal]:
        """Returns the replicas that take requests, and what closes the first of the others."""
        if not self._options.has_thresholds:
            return desk.there, Refusal.NONE
        closed_by = [self._admission.closed_by(load) for load in desk.there]
        open_to = [load for load, reason in zip(desk.there, closed_by, strict=True) if not reason]
        return open_to, next((reason for reason in closed_by if reason), Refusal.NONE)

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
        self._computed_elsewhere.discard(request)
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

    # --- replicas and requests that go away ---------------------------------------------------

    @property
    def held(self) -> int:
        """Requests that wait at the routers."""
        return sum(len(desk.queue) for desk in self._desks)

    def route_to(self, numbers: Sequence[int]) -> None:
        """Makes these replicas those that there are; with none of them, requests wait."""
        for desk in self._desks:
            desk.there = [desk.loads[number] for number in numbers]
        if numbers:
            self.serve_waiting()

    def take_back(self, request: int, seq: Request | None, *, has_token: bool = False) -> None:
        """Gives up a request that was sent as ``seq``, or that waits here, if it does.

        ``has_token`` tells of one sent that it came with its first token.
        """
        if seq is None:
            self._times_s.pop(request, None)
            self._computed_elsewhere.discard(request)
            for desk in self._desks:
                desk.queue.remove(request)
            return
        load, new_tokens = self._counted.pop(request)
        if seq.first_step < 0 and not has_token:
            load.prefilled(new_tokens)
        load.remove(seq.prompt_tokens, self._blocks(seq.prompt_tokens))
        if self._routing.may_wait:
            self.serve_waiting()
