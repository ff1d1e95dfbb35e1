"""A run whose replicas come, go and fail, and whose clients may not wait for ever."""

from __future__ import annotations

import math
from collections.abc import Sequence as Items

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.cluster.frontend import LiveFrontend
from dynosim.sim.cluster.pool import Pool
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.scaling.agenda import Agenda
from dynosim.sim.cluster.scaling.attempts import Attempts
from dynosim.sim.cluster.scaling.elastic_pool import Clock, ElasticPool
from dynosim.sim.cluster.scaling.spec import ScalingSpec
from dynosim.sim.cluster.scaling.starter import StartLinks
from dynosim.sim.cluster.scaling.states import ScalingLog
from dynosim.sim.cluster.together import Together
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.throttle import ThrottledTimer
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import Recorder


class Elastic(Together):
    """Replicas on one clock, of which only those that are started are routed to."""

    def __init__(
        self,
        pool: Pool,
        requests: Requests,
        recorder: Recorder,
        frontend: LiveFrontend,
        spec: ScalingSpec,
        seed: int,
        throttles: Items[ThrottledTimer] = (),
    ) -> None:
        super().__init__(pool, requests, recorder, frontend)
        env = self._env
        self._agenda = Agenda(env)
        self._attempts = Attempts(
            self._agenda, recorder.workload, seed, self._send_again, self._give_up
        )
        self._pool = ElasticPool(
            Clock(env=env, agenda=self._agenda, seed=seed, starts=StartLinks(env)),
            pool,
            self._workers,
            self._dispatcher,
            spec,
            throttles,
            hang_up=lambda index, now_s: self._give_up(index, Refusal.FAILED, now_s),
            on_first_token=self._on_first_token,
        )
        # Who goes away does so at a time that nobody knows before the first token.
        self._is_live = pool.is_live or recorder.workload.client.cancels
        self._first_s: dict[int, float] = {}

    def run(self, fitting: IntArray) -> None:
        """Runs the requests ``fitting`` until each has its answer or is lost."""
        if self._attempts.expect(len(fitting)):
            self._pool.open()
            super().run(fitting)
            self._recorder.waste(self._workers)

    def log(self) -> ScalingLog:
        """Returns what became of the replicas."""
        return self._pool.log(self._attempts.made, self._attempts.end_s)

    def _horizon(self) -> float:
        if not self._is_open or self._is_live:
            return -math.inf
        return min(self._next_arrival_s, self._agenda.next_s)

    # --- requests -----------------------------------------------------------------------------

    def _route(self, index: int) -> None:
        sent_s = self._recorder.sent_s[index]
        self._pool.arrive(is_first=True)
        self._attempts.begin(index, sent_s)
        self._dispatcher.arrive(index, sent_s)

    def _send_again(self, index: int, now_s: float) -> None:
        self._pool.arrive(is_first=False)
        self._attempts.begin(index, now_s)
        self._dispatcher.arrive(index, self._recorder.sent_s[index])

    def send(self, request: int, replica: int, waited_s: float) -> None:
        """Queues a request at a replica; what passed since its first arrival is waiting."""
        if self._attempts.number(request) > 1:
            waited_s = self._env.now - self._recorder.arrived_s[request]
        self._recorder.hand_over(request, replica, waited_s)
        seq = self._pool.there[replica][request] = self._requests.sequence(request)
        self._workers[replica].submit(seq)

    def _give_up(self, index: int, reason: Refusal, now_s: float) -> None:
        """Ends an attempt wherever it is; the client may make another."""
        worker = self._recorder.replica[index]
        seq = self._pool.leave(worker, index) if worker >= 0 else None
        self._recorder.take_back(index)
        self._dispatcher.take_back(index, seq)
        self._first_s.pop(index, None)
        if seq is not None:
            self._workers[worker].abort(seq)
            self._pool.look(worker, now_s)
        if not self._attempts.retry(index, now_s):
            super().turn_away(index, reason)
            self._attempts.settle(now_s)

    def turn_away(self, request: int, reason: Refusal) -> None:
        """Lets a client whose request was shed try again, or notes that it does not."""
        now_s = self._env.now
        if not self._attempts.retry(request, now_s):
            super().turn_away(request, reason)
            self._attempts.settle(now_s)

    def _on_first_token(self, seq: Sequence, time_s: float) -> None:
        self._attempts.answering(seq.index, time_s)
        self._first_s[seq.index] = time_s
        self._pool.ttft.note(time_s - self._recorder.sent_s[seq.index])

    def _on_finish(self, seq: Sequence, time_s: float) -> None:
        worker = self._recorder.replica[seq.index]
        self._pool.leave(worker, seq.index)
        self._attempts.ended(seq.index)
        first_s = self._first_s.pop(seq.index)
        if seq.output_tokens > 1:
            self._pool.tpot.note((time_s - first_s) / (seq.output_tokens - 1))
        super()._on_finish(seq, time_s)
        self._pool.look(worker, time_s)
        self._attempts.settle(time_s)
