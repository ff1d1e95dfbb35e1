"""Clients' attempts: how long each may take, when the next one is made, and who is left."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.cluster.scaling.agenda import Agenda
from dynosim.sim.refusal import Refusal
from dynosim.sim.workload.columns import Workload


class Attempts:
    """Counts every request's attempts by its client's policy, and the requests that are left.

    ``on_time_out`` is called with a request whose attempt has run for too long, unless
    :meth:`ended` was before, and with one whose user goes away before :meth:`ended`; ``send`` makes
    the next attempt. After the last request, at ``end_s``, nothing else happens.
    """

    def __init__(
        self,
        agenda: Agenda,
        workload: Workload,
        seed: int,
        send: Callable[[int, float], None],
        on_time_out: Callable[[int, Refusal, float], None],
    ) -> None:
        self._agenda = agenda
        self._network = workload.network
        self._policy = workload.client
        self._seed = seed
        self._send = send
        self._on_time_out = on_time_out
        self._made = array("q", [0]) * len(workload)
        self._open: dict[int, int] = {}
        # Whose answers come, by their attempts, and whose users went away.
        self._coming: dict[int, int] = {}
        self._gone: set[int] = set()
        self._left = 0
        self.end_s = 0.0

    @property
    def made(self) -> IntArray:
        """Attempts of every request."""
        return np.array(self._made, dtype=np.int64)

    def expect(self, num_requests: int) -> bool:
        """Notes how many requests are to be answered or lost; returns whether there are any."""
        self._left = num_requests
        return num_requests > 0

    def settle(self, time_s: float) -> None:
        """Counts a request that is answered or lost."""
        self._left -= 1
        self.end_s = max(self.end_s, time_s)
        if not self._left:
            self._agenda.close()

    def number(self, request: int) -> int:
        """Returns how many attempts there were of a request."""
        return self._made[request]

    def begin(self, request: int, sent_s: float) -> None:
        """Notes an attempt that is sent at a time."""
        self._made[request] += 1
        timeout_s = self._policy.client_timeout_s
        if timeout_s is None:
            return
        attempt = self._open[request] = self._made[request]

        def expire(now_s: float) -> None:
            if self._open.get(request) == attempt:
                self._on_time_out(request, Refusal.TIMED_OUT, now_s)

        self._agenda.at(sent_s + timeout_s, expire)

    def answering(self, request: int, time_s: float) -> None:
        """Notes that the attempt has a first token, which leaves the server now.

        Whoever goes away hangs up, and the server hears of that half a round trip later.
        """
        self._open.pop(request, None)
        after_s = self._policy.leaves_after_s(request, self._seed)
        if after_s == math.inf:
            return
        if self._network is not None:
            after_s += self._network.down_s + 0.5 * self._network.rtt_s
        attempt = self._coming[request] = self._made[request]

        def hang_up(now_s: float) -> None:
            if self._coming.get(request) == attempt:
                self._gone.add(request)
                self._on_time_out(request, Refusal.CANCELLED, now_s)

        self._agenda.at(time_s + after_s, hang_up)

    def ended(self, request: int) -> None:
        """Notes that the attempt has all of its answer, or has failed."""
        self._open.pop(request, None)
        self._coming.pop(request, None)

    def retry(self, request: int, now_s: float) -> bool:
        """Lets the client try again after a while; returns whether it does."""
        self.ended(request)
        made = self._made[request]
        if made > self._policy.client_retries or request in self._gone:
            return False
        at_s = now_s + self._policy.wait_s(request, made, self._seed)
        self._agenda.at(at_s, lambda then_s: self._send(request, then_s))
        return True
