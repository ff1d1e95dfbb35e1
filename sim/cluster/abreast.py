"""Replicas that meet only when a request arrives, for routers that look at them then.

That is so in an open loop where nobody waits at a router: between two arrivals each engine runs by
itself, and so it needs no common clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.cluster.dispatcher import Dispatcher
from dynosim.sim.cluster.pool import Pool
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import Recorder


class Abreast:
    """One run. ``_ends_s`` are the ends of the runs in progress, infinity where there is none.

    All that ended before a request arrives has happened when the router looks; at one instant
    arrivals come before the ends of runs, so that all of them can enter.
    """

    def __init__(self, pool: Pool, requests: Requests, recorder: Recorder) -> None:
        self._replicas = pool.replicas
        self._requests = requests
        self._recorder = recorder
        self._dispatcher = Dispatcher(pool, requests, self)
        self._ends_s = [math.inf] * len(pool.replicas)
        self._now_s = 0.0

    def run(self, fitting: IntArray) -> None:
        """Runs the requests ``fitting`` to their ends."""
        recorder = self._recorder
        # Compiled code must know that these are floats.
        arrivals_s: Iterator[float] = iter(np.frombuffer(recorder.arrived_s)[fitting].data)
        for index, arrives_s in zip(fitting.data, arrivals_s, strict=True):
            if arrives_s > self._now_s:
                self._advance(arrives_s)
                self._now_s = arrives_s
            self._dispatcher.arrive(index, recorder.sent_s[index])
        self._advance(math.inf)

    def _advance(self, horizon_s: float) -> None:
        """Lets every engine go on with the runs that end before a time."""
        ends_s = self._ends_s
        for number, end_s in enumerate(ends_s):
            if end_s < horizon_s:
                replica = self._replicas[number]
                ends_s[number] = replica.run_until(end_s, horizon_s, self._on_finish)

    def _on_finish(self, seq: Sequence, time_s: float) -> None:
        self._dispatcher.finished(seq)
        self._recorder.record(seq, time_s)

    # --- what the routers ask for -------------------------------------------------------------

    def now_s(self) -> float:
        """Returns the time."""
        return self._now_s

    def call_at(self, time_s: float, then: Callable[[], None]) -> None:
        """Raises AssertionError: nobody waits here."""
        raise AssertionError("a request waits at a router that keeps none waiting")

    def send(self, request: int, replica: int, waited_s: float) -> None:
        """Queues a request at a replica."""
        now_s = self._now_s
        self._recorder.hand_over(request, replica, waited_s)
        sooner_s = self._replicas[replica].enqueue(self._requests.sequence(request), now_s)
        if sooner_s is not None:
            self._ends_s[replica] = sooner_s
        elif self._ends_s[replica] == math.inf:
            self._ends_s[replica] = now_s

    def turn_away(self, request: int, reason: Refusal) -> None:
        """Notes a request that was shed."""
        self._recorder.shed(request, reason, self._now_s)
