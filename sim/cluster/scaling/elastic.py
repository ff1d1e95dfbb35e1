"""A run whose replicas come, go and fail, and whose clients may not wait for ever."""

from __future__ import annotations

import math
from collections.abc import Sequence as Items
from functools import partial

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.cluster.frontend import LiveFrontend
from dynosim.sim.cluster.pool import Pool
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.scaling.agenda import Agenda
from dynosim.sim.cluster.scaling.attempts import Attempts
from dynosim.sim.cluster.scaling.control import Control
from dynosim.sim.cluster.scaling.disruptions import Disruptions
from dynosim.sim.cluster.scaling.fleet import Fleet
from dynosim.sim.cluster.scaling.signals import Signals
from dynosim.sim.cluster.scaling.spec import ScalingSpec
from dynosim.sim.cluster.scaling.starter import Starter
from dynosim.sim.cluster.scaling.states import ScalingLog
from dynosim.sim.cluster.together import Together
from dynosim.sim.cluster.worker import Worker
from dynosim.sim.engine.engine import Engine
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.throttle import ThrottledTimer
from dynosim.sim.random_streams import stream
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import Recorder


class Elastic(Together):
    """Replicas on one clock, of which only those that are started are routed to.

    ``throttles`` are the timers of replicas that may become slow. A replica's data-parallel ranks
    that share nothing are workers side by side.
    """

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
        routing = pool.routing
        env = self._env
        self._spec = spec
        self._engines = pool.engines_by_replica
        self._ranks = routing.ranks_apart
        self._throttles = throttles
        self._agenda = Agenda(env)
        self._starter = Starter(env, spec.start, lambda n: stream(seed, f"start {n}"))
        self._fleet = Fleet(
            env,
            self._starter,
            spec.size,
            is_waking=spec.start.plan.is_waking,
            reserve=spec.options.warm_replicas,
            is_idle=lambda number: not any(self._at_replica(number)),
            on_start=self._begin_cold,
            on_change=self._route_to_ready,
        )
        policy = recorder.workload.client
        self._attempts = Attempts(
            self._agenda, policy, len(recorder.workload), seed, self._send_again, self._give_up
        )
        self._disruptions = Disruptions(
            self._agenda,
            self._fleet,
            spec.options,
            seed,
            hang_up=self._hang_up,
            slow_down=self._slow_down,
            reroute=self._route_to_ready,
        )
        self._is_live = routing.is_live
        # Of every worker, the requests that are there by their numbers.
        self._there: list[dict[int, Sequence]] = [{} for _ in self._workers]
        self._left = self._held = self._arrivals = 0
        self._kept = self._first_tokens = 0
        self._end_s = 0.0
        slo_ms = spec.options.autoscaler_slo_ttft_ms
        self._slo_s = math.inf if slo_ms is None else slo_ms * 1e-3
        self._watch_first_tokens()

    def run(self, fitting: IntArray) -> None:
        """Runs the requests ``fitting`` until each has its answer or is lost."""
        self._left = len(fitting)
        if not self._left:
            return
        options = self._spec.options
        self._fleet.open(self._spec.initial)
        autoscaler = self._spec.make_autoscaler()
        if autoscaler is not None:
            most = options.max_replicas or self._spec.size
            Control(self._agenda, self._fleet, autoscaler, options, self._observe, most).start()
        self._disruptions.start(self._spec.failures)
        super().run(fitting)

    def log(self) -> ScalingLog:
        """Returns what became of the replicas."""
        fleet = self._fleet
        return ScalingLog(
            changes=fleet.changes,
            num_replicas=self._spec.size,
            end_s=self._end_s,
            start_s=fleet.start_s,
            fallbacks=self._starter.fallbacks,
            crashes=self._disruptions.crashes,
            attempts=self._attempts.made,
            held=self._held,
            infeasible=self._spec.infeasible,
        )

    def _horizon(self) -> float:
        if not self._is_open or self._is_live:
            return -math.inf
        return min(self._next_arrival_s, self._agenda.next_s)

    # --- replicas -----------------------------------------------------------------------------

    def _workers_of(self, number: int) -> Items[Worker]:
        return self._workers[number * self._ranks : (number + 1) * self._ranks]

    def _at_replica(self, number: int) -> Items[dict[int, Sequence]]:
        return self._there[number * self._ranks : (number + 1) * self._ranks]

    def _begin_cold(self, number: int) -> None:
        for engines in self._engines[number * self._ranks : (number + 1) * self._ranks]:
            for engine in engines:
                engine.kv.flush()

    def _route_to_ready(self) -> None:
        ready = self._fleet.ready
        now_s = self._env.now
        self._disruptions.watch(ready, now_s)
        if self._disruptions.routers_are_away(now_s):
            ready = []
        size = self._ranks
        self._dispatcher.route_to([n * size + rank for n in ready for rank in range(size)])

    def _observe(self, now_s: float) -> Signals:
        """Returns what an autoscaler sees now; counts of the interval begin anew."""
        ready = self._fleet.ready
        workers = [worker for number in ready for worker in self._workers_of(number)]
        there = [len(own) for number in ready for own in self._at_replica(number)]
        held = self._dispatcher.held
        engines = [e for n in ready for es in self._engines_of(n) for e in es]
        use = [engine.used_blocks_at(now_s) / engine.kv.num_blocks for engine in engines]
        attained = self._kept / self._first_tokens if self._first_tokens else math.nan
        seen = Signals(
            time_s=now_s,
            ready=len(ready),
            starting=self._fleet.starting,
            waiting=sum(worker.engine.num_waiting for worker in workers) + held,
            outstanding=sum(there) + held,
            kv_use=sum(use) / len(use) if use else 0.0,
            arrivals=self._arrivals,
            interval_s=self._spec.options.autoscaler_interval_s,
            slo_attainment=attained,
        )
        self._arrivals = self._kept = self._first_tokens = 0
        return seen

    def _engines_of(self, number: int) -> Items[Items[Engine]]:
        return self._engines[number * self._ranks : (number + 1) * self._ranks]

    def _hang_up(self, number: int | None, now_s: float) -> None:
        """Ends the attempts that are at one replica, or at all."""
        there = self._there if number is None else self._at_replica(number)
        for request in sorted(request for own in there for request in own):
            self._give_up(request, Refusal.FAILED, now_s)

    def _slow_down(self, number: int, factor: float) -> None:
        self._throttles[number].factor = factor
        for worker in self._workers_of(number):
            worker.cut()

    # --- requests -----------------------------------------------------------------------------

    def _route(self, index: int) -> None:
        recorder = self._recorder
        self._arrivals += 1
        self._held += not self._fleet.ready
        self._attempts.begin(index, recorder.sent_s[index])
        self._dispatcher.arrive(index, recorder.sent_s[index])

    def _send_again(self, index: int, now_s: float) -> None:
        self._arrivals += 1
        self._attempts.begin(index, now_s)
        self._dispatcher.arrive(index, self._recorder.sent_s[index])

    def send(self, request: int, replica: int, waited_s: float) -> None:
        """Queues a request at a replica; what passed since its first arrival is waiting."""
        if self._attempts.number(request) > 1:
            waited_s = self._env.now - self._recorder.arrived_s[request]
        self._recorder.hand_over(request, replica, waited_s)
        seq = self._there[replica][request] = self._requests.sequence(request)
        self._workers[replica].submit(seq)

    def _give_up(self, index: int, reason: Refusal, now_s: float) -> None:
        """Ends an attempt wherever it is; the client may make another."""
        worker = self._recorder.replica[index]
        seq = self._there[worker].pop(index) if worker >= 0 else None
        self._recorder.take_back(index)
        self._dispatcher.take_back(index, seq)
        if seq is not None:
            self._workers[worker].abort(seq)
            self._fleet.look(worker // self._ranks, now_s)
        if not self._attempts.retry(index, now_s):
            super().turn_away(index, reason)
            self._settle(now_s)

    def turn_away(self, request: int, reason: Refusal) -> None:
        """Lets a client whose request was shed try again, or notes that it does not."""
        now_s = self._env.now
        if not self._attempts.retry(request, now_s):
            super().turn_away(request, reason)
            self._settle(now_s)

    def _on_finish(self, seq: Sequence, time_s: float) -> None:
        worker = self._recorder.replica[seq.index]
        del self._there[worker][seq.index]
        self._attempts.ended(seq.index)
        super()._on_finish(seq, time_s)
        self._fleet.look(worker // self._ranks, time_s)
        self._settle(time_s)

    def _settle(self, time_s: float) -> None:
        """Counts a request that is answered or lost; after the last one nothing else happens."""
        self._left -= 1
        self._end_s = max(self._end_s, time_s)
        if not self._left:
            self._agenda.close()

    def _watch_first_tokens(self) -> None:
        """Tells routers, clients' deadlines and the autoscaler's SLO of every first token."""
        for engines in self._engines:
            for engine in engines:
                engine.on_prefilled = partial(self._on_first_token, engine)

    def _on_first_token(self, engine: Engine, seq: Sequence) -> None:
        worker = self._recorder.replica[seq.index]
        # An attempt that was given up is still computed to the end of its step.
        if worker < 0 or self._there[worker].get(seq.index) is not seq:
            return
        self._dispatcher.prefilled(seq)
        self._attempts.ended(seq.index)
        self._first_tokens += 1
        self._kept += engine.step_end_s - self._recorder.sent_s[seq.index] <= self._slo_s
