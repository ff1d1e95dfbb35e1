"""Prefill and decode pools whose replicas come, go and fail, each by itself."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.cluster.disaggregated import Disaggregated, Journey, PrefillPool
from dynosim.sim.cluster.frontend import LiveFrontend
from dynosim.sim.cluster.pool import Pool
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.scaling.agenda import Agenda
from dynosim.sim.cluster.scaling.attempts import Attempts
from dynosim.sim.cluster.scaling.elastic_pool import Clock, ElasticPool
from dynosim.sim.cluster.scaling.spec import ScalingSpec
from dynosim.sim.cluster.scaling.starter import StartLinks
from dynosim.sim.cluster.scaling.states import ScalingLog
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.throttle import ThrottledTimer
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import Recorder


@dataclass(frozen=True, kw_only=True)
class PoolScaling:
    """How the replicas of one pool come, go and fail, and the timers of those that get slow."""

    spec: ScalingSpec
    throttles: Items[ThrottledTimer] = ()


class ElasticPools(Disaggregated):
    """Two pools, of which only the replicas that are started are routed to.

    An attempt ends with either of the replicas that it needs: the one that computes its prompt or
    keeps its KV, and the one that has taken blocks for it. What was under way between them ends,
    and both let go of it.
    """

    def __init__(
        self,
        pool: Pool,
        requests: Requests,
        recorder: Recorder,
        frontend: LiveFrontend,
        prefill: PrefillPool,
        scaling: PoolScaling,
        prefill_scaling: PoolScaling,
        seed: int,
    ) -> None:
        super().__init__(pool, requests, recorder, frontend, prefill)
        env = self._env
        agenda = Agenda(env)
        self._attempts = Attempts(agenda, recorder.workload, seed, self._send_again, self._give_up)
        clock = Clock(env=env, agenda=agenda, seed=seed, starts=StartLinks(env))
        self._first_s: dict[int, float] = {}
        self._decode = ElasticPool(
            clock,
            pool,
            self._workers,
            self._dispatcher,
            scaling.spec,
            scaling.throttles,
            hang_up=self._hang_up,
            on_first_token=self._on_first_token,
        )
        self._prefill = ElasticPool(
            clock,
            prefill.pool,
            self._prefill_workers,
            self._prefill_routers,
            prefill_scaling.spec,
            prefill_scaling.throttles,
            hang_up=self._hang_up,
            # Clients see none of these: those that are handed over are noted as they arrive.
            on_first_token=lambda prompt, time_s: None,
            name="prefill ",
        )

    def run(self, fitting: IntArray) -> None:
        """Runs the requests ``fitting`` until each has its answer or is lost."""
        if self._attempts.expect(len(fitting)):
            self._decode.open()
            self._prefill.open()
            super().run(fitting)
            self._recorder.waste(self._workers)

    def logs(self) -> tuple[ScalingLog, ScalingLog]:
        """Returns what became of the replicas of the decode and the prefill pool."""
        made, end_s = self._attempts.made, self._attempts.end_s
        return self._decode.log(made, end_s), self._prefill.log(made, end_s)

    # --- from hand to hand --------------------------------------------------------------------

    def _route(self, index: int) -> None:
        self._begin(index, self._recorder.sent_s[index], is_first=True)

    def _send_again(self, index: int, now_s: float) -> None:
        self._begin(index, now_s, is_first=False)

    def _begin(self, index: int, sent_s: float, *, is_first: bool) -> None:
        self._decode.arrive(is_first=is_first)
        if not self._is_local(index):
            self._prefill.arrive(is_first=is_first)
        self._attempts.begin(index, sent_s)
        super()._route(index)

    def _waited_s(self, request: int, waited_s: float) -> float:
        """Returns for how long a request waited; of one tried again, all until now is waiting."""
        if self._attempts.number(request) == 1:
            return waited_s
        return self._env.now - self._recorder.arrived_s[request]

    def _send_to_prefill(self, request: int, replica: int, waited_s: float) -> None:
        super()._send_to_prefill(request, replica, self._waited_s(request, waited_s))
        prompt = self._journeys[request].prompt
        assert prompt is not None, "nothing was sent to a prefill replica"
        self._prefill.there[replica][request] = prompt

    def send(self, request: int, replica: int, waited_s: float) -> None:
        """Has a decode replica take blocks for a prompt, or compute a short one."""
        waited_s = self._waited_s(request, waited_s)
        journey = self._journeys.get(request)
        if journey is None:
            self._recorder.hand_over(request, replica, waited_s)
            seq = self._requests.sequence(request)
            self._workers[replica].submit(seq)
        else:
            super().send(request, replica, waited_s)
            assert journey.seq is not None, "nothing was sent to a decode replica"
            seq = journey.seq
        self._decode.there[replica][request] = seq

    def _complete(self, index: int, journey: Journey) -> None:
        self._prefill.leave(journey.prefill, index)
        if self._brings_token:
            assert journey.seq is not None, "KV has come where nobody expected it"
            self._on_first_token(journey.seq, self._env.now)
        super()._complete(index, journey)
        self._prefill.look(journey.prefill, self._env.now)

    # --- what comes to nothing ----------------------------------------------------------------

    def _hang_up(self, index: int, now_s: float) -> None:
        self._give_up(index, Refusal.FAILED, now_s)

    def _give_up(self, index: int, reason: Refusal, now_s: float) -> None:
        """Ends an attempt wherever it is; the client may make another."""
        journey = self._journeys.pop(index, None)
        self._leave_decode(index, journey, now_s)
        if journey is not None:
            self._break_off(index, journey, now_s)
        self._recorder.take_back(index)
        self._first_s.pop(index, None)
        if not self._attempts.retry(index, now_s):
            super().turn_away(index, reason)
            self._attempts.settle(now_s)

    def _leave_decode(self, index: int, journey: Journey | None, now_s: float) -> None:
        """Takes a request off the decode replica that it is at, or expected at."""
        recorder = self._recorder
        worker = recorder.replica[index]
        if worker < 0:
            self._dispatcher.take_back(index, None)
            return
        seq = self._decode.leave(worker, index)
        was_prefilled = journey is None and recorder.prefill_replica[index] >= 0
        if was_prefilled:
            self._prefill_workers[recorder.prefill_replica[index]].engine.void(seq)
        self._dispatcher.take_back(index, seq, has_token=was_prefilled and self._brings_token)
        self._workers[worker].abort(seq)
        self._decode.look(worker, now_s)

    def _break_off(self, index: int, journey: Journey, now_s: float) -> None:
        """Ends what is under way of a request, and takes its prompt off the prefill replica."""
        journey.is_over = True
        for arrival in journey.arrivals:
            self._fabric.cancel(arrival)
        prompt, worker = journey.prompt, journey.prefill
        if prompt is None:
            self._prefill_routers.take_back(index, None)
            return
        self._prefill.leave(worker, index)
        if journey.is_prefilled:
            self._prefill_workers[worker].discard(prompt)
        else:
            self._prefill_routers.take_back(index, prompt)
            prompt.keeps_blocks = False
            self._prefill_workers[worker].abort(prompt)
        self._prefill.look(worker, now_s)

    def turn_away(self, request: int, reason: Refusal) -> None:
        """Lets a client whose request was shed try again, or notes that it does not."""
        self._journeys.pop(request, None)
        now_s = self._env.now
        if not self._attempts.retry(request, now_s):
            super().turn_away(request, reason)
            self._attempts.settle(now_s)

    # --- answers come -------------------------------------------------------------------------

    def _on_first_token(self, seq: Sequence, time_s: float) -> None:
        self._attempts.answering(seq.index, time_s)
        self._first_s[seq.index] = time_s
        if not self._is_local(seq.index):
            self._prefill.ttft.note(time_s - self._recorder.sent_s[seq.index])

    def _on_finish(self, seq: Sequence, time_s: float) -> None:
        worker = self._recorder.replica[seq.index]
        self._decode.leave(worker, seq.index)
        self._attempts.ended(seq.index)
        first_s = self._first_s.pop(seq.index)
        if seq.output_tokens > 1:
            self._decode.tpot.note((time_s - first_s) / (seq.output_tokens - 1))
        super()._on_finish(seq, time_s)
        self._decode.look(worker, time_s)
        self._attempts.settle(time_s)
