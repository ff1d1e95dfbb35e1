"""Replicas on one SimPy clock: for routers that look at them, and for closed loops."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from collections.abc import Sequence as Items

import simpy

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.cluster.replica import Replica
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.routers.base import Router
from dynosim.sim.cluster.worker import Worker
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.results import Recorder


class Together:
    """One run: the SimPy environment, its workers and the requests on their way."""

    def __init__(
        self,
        engines: Items[Replica],
        router: Router,
        requests: Requests,
        recorder: Recorder,
        frontend_s: float,
    ) -> None:
        self._env = simpy.Environment()
        self._router = router
        self._requests = requests
        self._recorder = recorder
        self._frontend_s = frontend_s
        self._workers = [
            Worker(self._env, engine, self._on_finish, lambda: self._horizon_s)
            for engine in engines
        ]
        self._slots = recorder.workload.max_concurrency or 0
        self._in_flight = 0
        # Where answers make room for requests, an engine may not run ahead of the clock at all.
        self._horizon_s = -math.inf
        self._backlog: deque[int] = deque()

    def run(self, fitting: IntArray) -> None:
        """Runs the requests ``fitting`` to their ends."""
        if self._slots:
            self._env.process(self._capped_arrivals(fitting))
        else:
            self._recorder.send(fitting)
            self._env.process(self._open_arrivals(fitting))
        self._env.run()

    def _open_arrivals(self, fitting: IntArray) -> Generator[simpy.Event, None, None]:
        """Brings every request to the router at its own time, whatever becomes of the others."""
        now_s = 0.0
        arrival_s = self._recorder.workload.arrival_s + self._frontend_s
        for index, arrives_s in zip(fitting.data, arrival_s[fitting].data, strict=True):
            if arrives_s > now_s:
                self._horizon_s = arrives_s
                yield self._env.timeout(arrives_s - self._env.now)
                now_s = arrives_s
            self._route(index)
        self._horizon_s = math.inf

    def _capped_arrivals(self, fitting: IntArray) -> Generator[simpy.Event, None, None]:
        """Sends every request at its time, or when a slot of ``max_concurrency`` is free."""
        now_s = 0.0
        send_s = self._recorder.workload.arrival_s[fitting]
        for index, sends_s in zip(fitting.data, send_s.data, strict=True):
            if sends_s > now_s:
                yield self._env.timeout(sends_s - self._env.now)
                now_s = sends_s
            self._backlog.append(index)
            self._send_next(now_s)

    def _send_next(self, now_s: float) -> None:
        """Sends the oldest request that waits for a slot, if there is both."""
        if not self._backlog or self._in_flight >= self._slots:
            return
        self._in_flight += 1
        index = self._backlog.popleft()
        self._recorder.sent_s[index] = now_s
        if self._frontend_s > 0.0:
            arrival = self._env.timeout(self._frontend_s, index)
            assert arrival.callbacks is not None
            arrival.callbacks.append(self._on_arrival)
        else:
            self._route(index)

    def _on_arrival(self, event: simpy.Event) -> None:
        index = event.value
        assert isinstance(index, int)
        self._route(index)

    def _route(self, index: int) -> None:
        chosen = self._router.choose(index, self._workers)
        self._recorder.replica[index] = chosen
        self._workers[chosen].submit(self._requests.sequence(index))

    def _on_finish(self, seq: Sequence, time_s: float) -> None:
        self._recorder.record(seq, time_s)
        self._in_flight -= 1
        self._send_next(time_s)
