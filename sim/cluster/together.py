"""Replicas on one SimPy clock: for closed loops, and routers at which requests wait."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from functools import partial

import numpy as np
import simpy

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.cluster.dispatcher import Dispatcher
from dynosim.sim.cluster.frontend import LiveFrontend
from dynosim.sim.cluster.pool import Pool
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.worker import Worker
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import Recorder
from dynosim.sim.workload.client_slots import ClientSlots
from dynosim.sim.workload.turns import Waiting


class Together:
    """One run: the SimPy environment, its workers and the requests on their way."""

    def __init__(
        self, pool: Pool, requests: Requests, recorder: Recorder, frontend: LiveFrontend
    ) -> None:
        self._env = simpy.Environment()
        self._requests = requests
        self._recorder = recorder
        self._frontend = frontend
        self._dispatcher = Dispatcher(pool, requests, self)
        on_run_end = self._dispatcher.serve_waiting if pool.routing.may_wait else None
        self._workers = [
            Worker(
                self._env, replica, self._on_finish, on_run_end=on_run_end, horizon=self._horizon
            )
            for replica in pool.replicas
        ]
        workload = recorder.workload
        self._is_open = workload.is_open
        self._slots = workload.max_concurrency or math.inf
        self._network = workload.network
        self._turns: Waiting | None = None
        self._in_flight = 0
        self._next_arrival_s = -math.inf
        self._backlog: deque[int] = deque()
        self._clients: ClientSlots | None = None
        limit = workload.client.client_max_in_flight
        if limit is not None and workload.clients is not None:
            self._clients = ClientSlots(workload.clients, limit)

    def run(self, fitting: IntArray) -> None:
        """Runs the requests ``fitting`` to their ends."""
        turns = self._recorder.workload.turns
        if turns is not None:
            self._turns = Waiting(turns, fitting.tolist())
        if self._is_open:
            self._env.process(self._open_arrivals(fitting))
        else:
            self._env.process(self._first_arrivals(fitting))
        self._env.run()

    def _horizon(self) -> float:
        """Returns the time before which nothing from outside can concern an engine.

        Where answers make room for requests, it may not run ahead of the clock at all.
        """
        return -math.inf

    def _open_arrivals(self, fitting: IntArray) -> Generator[simpy.Event, None, None]:
        """Brings every request to the router at its own time, whatever becomes of the others."""
        now_s = 0.0
        arrived_s = np.frombuffer(self._recorder.arrived_s)[fitting]
        for index, arrives_s in zip(fitting.data, arrived_s.data, strict=True):
            if arrives_s > now_s:
                self._next_arrival_s = arrives_s
                yield self._env.timeout(arrives_s - self._env.now)
                now_s = arrives_s
            self._route(index)
        self._next_arrival_s = math.inf

    def _first_arrivals(self, fitting: IntArray) -> Generator[simpy.Event, None, None]:
        """Sends requests that wait for no other at their times, or when there is a slot."""
        now_s = 0.0
        send_s = self._recorder.workload.arrival_s[fitting]
        for index, sends_s in zip(fitting.data, send_s.data, strict=True):
            if self._turns is not None and self._turns.waits(index):
                continue
            if sends_s > now_s:
                yield self._env.timeout(sends_s - self._env.now)
                now_s = sends_s
            self._queue_up(index, now_s)

    def _send_next(self, now_s: float) -> None:
        """Sends the oldest request that waits for a slot, if there is both."""
        if not self._backlog or self._in_flight >= self._slots:
            return
        self._in_flight += 1
        index = self._backlog.popleft()
        recorder = self._recorder
        recorder.sent_s[index] = now_s
        input_tokens = int(recorder.workload.input_tokens[index])
        reaches_s = now_s
        if self._network is not None:
            reaches_s += float(self._network.up_s(input_tokens))
        arrives_s = self._frontend.arrives_s(reaches_s, input_tokens)
        recorder.arrived_s[index] = arrives_s
        self._at(arrives_s, now_s, lambda: self._route(index))

    def _at(self, time_s: float, now_s: float, then: Callable[[], None]) -> None:
        """Calls ``then`` at a time, which may be now."""
        if time_s > now_s:
            self.call_at(time_s, then)
        else:
            then()

    def _route(self, index: int) -> None:
        self._dispatcher.arrive(index, self._recorder.sent_s[index])

    # --- what the routers ask for -------------------------------------------------------------

    def now_s(self) -> float:
        """Returns the time."""
        return self._env.now

    def call_at(self, time_s: float, then: Callable[[], None]) -> None:
        """Calls ``then`` at a time, not before the caller has returned."""
        event = self._env.timeout(max(time_s - self._env.now, 0.0))
        assert event.callbacks is not None
        event.callbacks.append(lambda _: then())

    def send(self, request: int, replica: int, waited_s: float) -> None:
        """Queues a request at a replica."""
        self._recorder.hand_over(request, replica, waited_s)
        self._workers[replica].submit(self._requests.sequence(request))

    def turn_away(self, request: int, reason: Refusal) -> None:
        """Notes a request that was shed, and lets its client send the next one."""
        now_s = self._env.now
        self._recorder.shed(request, reason, now_s)
        if not self._is_open:
            told_s = now_s + self._down_s
            self.call_at(told_s, lambda: self._answered(request, told_s))

    # --- answers come -------------------------------------------------------------------------

    def _on_finish(self, seq: Sequence, time_s: float) -> None:
        self._dispatcher.finished(seq)
        if self._is_open:
            self._recorder.record(seq, time_s)
            return
        index = seq.index
        written_s = self._frontend.written_s(index, time_s)
        self._recorder.record(seq, written_s)
        had_s = written_s + self._down_s
        self._at(had_s, time_s, lambda: self._answered(index, had_s))

    @property
    def _down_s(self) -> float:
        return 0.0 if self._network is None else self._network.down_s

    def _answered(self, request: int, now_s: float) -> None:
        """Lets the client who has all of an answer go on, and whoever waits for a slot."""
        self._in_flight -= 1
        if self._clients is not None:
            self._backlog.extend(self._clients.free(request))
        self._send_next(now_s)
        for index, think_s in self._turns.answered(request) if self._turns is not None else ():
            arrival_s = float(self._recorder.workload.arrival_s[index])
            sends_s = max(now_s + think_s, arrival_s)
            self._at(sends_s, now_s, partial(self._queue_up, index, sends_s))

    def _queue_up(self, index: int, now_s: float) -> None:
        """Sends a request as soon as there is a slot, of its client and of all."""
        self._recorder.wanted_s[index] = now_s
        if self._clients is None or self._clients.take(index):
            self._backlog.append(index)
            self._send_next(now_s)
