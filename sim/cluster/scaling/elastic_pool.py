"""Replicas of one pool that come, go and fail, and who is at each of them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import partial

import simpy

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.cluster.dispatcher import Dispatcher
from dynosim.sim.cluster.pool import Pool
from dynosim.sim.cluster.scaling.agenda import Agenda
from dynosim.sim.cluster.scaling.attainment import Attainment
from dynosim.sim.cluster.scaling.control import Control
from dynosim.sim.cluster.scaling.disruptions import Disruptions
from dynosim.sim.cluster.scaling.fleet import Fleet
from dynosim.sim.cluster.scaling.signals import Signals
from dynosim.sim.cluster.scaling.spec import ScalingSpec
from dynosim.sim.cluster.scaling.starter import Starter, StartLinks
from dynosim.sim.cluster.scaling.states import ScalingLog
from dynosim.sim.cluster.worker import Worker
from dynosim.sim.engine.engine import Engine
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.throttle import ThrottledTimer
from dynosim.sim.random_streams import stream


@dataclass(frozen=True, kw_only=True)
class Clock:
    """What the pools of a run share: time, what is to come, and the storage that starts read."""

    env: simpy.Environment
    agenda: Agenda
    seed: int
    starts: StartLinks


class ElasticPool:
    """The replicas of one pool, of which only those that are started are routed to.

    ``throttles`` are the timers of replicas that may become slow. A replica's data-parallel ranks
    that share nothing are workers side by side; ``there`` has, of every worker, the requests that
    are at it by their numbers. ``hang_up`` ends a request's attempt at a time; ``on_first_token``
    is called with each that gets its first token here, and when. Draws are from streams that begin
    with ``name``.
    """

    def __init__(
        self,
        clock: Clock,
        pool: Pool,
        workers: Items[Worker],
        dispatcher: Dispatcher,
        spec: ScalingSpec,
        throttles: Items[ThrottledTimer],
        *,
        hang_up: Callable[[int, float], None],
        on_first_token: Callable[[Sequence, float], None],
        name: str = "",
    ) -> None:
        self.arrivals = 0
        self.held = 0
        self.there: list[dict[int, Sequence]] = [{} for _ in workers]
        self.ttft = Attainment(spec.options.autoscaler_slo_ttft_ms)
        self.tpot = Attainment(spec.options.autoscaler_slo_tpot_ms)
        self._clock = clock
        self._spec = spec
        self._workers = workers
        self._dispatcher = dispatcher
        self._engines = pool.engines_by_replica
        self._ranks = pool.routing.ranks_apart
        self._throttles = throttles
        self._hang_up_request = hang_up
        self._starter = Starter(
            clock.env, spec.start, lambda n: stream(clock.seed, f"{name}start {n}"), clock.starts
        )
        self.fleet = Fleet(
            clock.env,
            self._starter,
            spec.size,
            is_waking=spec.start.plan.is_waking,
            reserve=spec.options.warm_replicas,
            is_idle=lambda number: not any(self._at_replica(number)),
            on_start=self._begin_cold,
            on_change=self._route_to_ready,
        )
        self._disruptions = Disruptions(
            clock.agenda,
            self.fleet,
            spec.options,
            lambda n: stream(clock.seed, f"{name}failures {n}"),
            hang_up=self._hang_up,
            slow_down=self._slow_down,
            reroute=self._route_to_ready,
        )
        self._watch_first_tokens(on_first_token)

    def open(self) -> None:
        """Begins with the replicas that serve at first; what is to befall them is on the agenda."""
        spec, options = self._spec, self._spec.options
        self.fleet.open(spec.initial)
        autoscaler = spec.make_autoscaler()
        if autoscaler is not None:
            most = options.max_replicas or spec.size
            agenda = self._clock.agenda
            Control(agenda, self.fleet, autoscaler, options, self._observe, most).start()
        self._disruptions.start(spec.failures)

    def log(self, attempts: IntArray, end_s: float) -> ScalingLog:
        """Returns what became of the replicas in a run that ended at ``end_s``."""
        return ScalingLog(
            changes=self.fleet.changes,
            num_replicas=self._spec.size,
            end_s=end_s,
            start_s=self.fleet.start_s,
            fallbacks=self._starter.fallbacks,
            crashes=self._disruptions.crashes,
            attempts=attempts,
            held=self.held,
            infeasible=self._spec.infeasible,
        )

    # --- who is there -------------------------------------------------------------------------

    def arrive(self, *, is_first: bool) -> None:
        """Counts an attempt that comes to the pool's routers, and whether nobody serves."""
        self.arrivals += 1
        self.held += is_first and not self.fleet.ready

    def leave(self, worker: int, request: int) -> Sequence:
        """Takes a request off a worker; see :meth:`look` for when that is over."""
        return self.there[worker].pop(request)

    def look(self, worker: int, now_s: float) -> None:
        """Lets the replica of a worker go if it drains and has nobody left."""
        self.fleet.look(worker // self._ranks, now_s)

    def _workers_of(self, number: int) -> Items[Worker]:
        return self._workers[number * self._ranks : (number + 1) * self._ranks]

    def _at_replica(self, number: int) -> Items[dict[int, Sequence]]:
        return self.there[number * self._ranks : (number + 1) * self._ranks]

    def _engines_of(self, number: int) -> list[Engine]:
        own = self._engines[number * self._ranks : (number + 1) * self._ranks]
        return [engine for engines in own for engine in engines]

    # --- replicas -----------------------------------------------------------------------------

    def _begin_cold(self, number: int) -> None:
        for engine in self._engines_of(number):
            engine.flush()

    def _route_to_ready(self) -> None:
        ready = self.fleet.ready
        now_s = self._clock.env.now
        self._disruptions.watch(ready, now_s)
        if self._disruptions.routers_are_away(now_s):
            ready = []
        size = self._ranks
        self._dispatcher.route_to([n * size + rank for n in ready for rank in range(size)])

    def _observe(self, now_s: float) -> Signals:
        """Returns what an autoscaler sees now; counts of the interval begin anew."""
        ready = self.fleet.ready
        workers = [worker for number in ready for worker in self._workers_of(number)]
        there = [len(own) for number in ready for own in self._at_replica(number)]
        held = self._dispatcher.held
        engines = [engine for number in ready for engine in self._engines_of(number)]
        use = [engine.used_blocks_at(now_s) / engine.kv.num_blocks for engine in engines]
        seen = Signals(
            time_s=now_s,
            ready=len(ready),
            starting=self.fleet.starting,
            waiting=sum(worker.engine.num_waiting for worker in workers) + held,
            outstanding=sum(there) + held,
            kv_use=sum(use) / len(use) if use else 0.0,
            arrivals=self.arrivals,
            interval_s=self._spec.options.autoscaler_interval_s,
            slo_attainment=fmin(self.ttft.take(), self.tpot.take()),
        )
        self.arrivals = 0
        return seen

    def _hang_up(self, number: int | None, now_s: float) -> None:
        """Ends the attempts that are at one replica, or at all."""
        there = self.there if number is None else self._at_replica(number)
        for request in sorted(request for own in there for request in own):
            self._hang_up_request(request, now_s)

    def _slow_down(self, number: int, factor: float) -> None:
        self._throttles[number].factor = factor
        for worker in self._workers_of(number):
            worker.cut()

    def _watch_first_tokens(self, then: Callable[[Sequence, float], None]) -> None:
        """Has routers, and ``then``, told of every first token."""

        def note(own: dict[int, Sequence], engine: Engine, seq: Sequence) -> None:
            # An attempt that was given up is still computed to the end of its step.
            if own.get(seq.index) is seq:
                self._dispatcher.prefilled(seq)
                then(seq, engine.step_end_s)

        for own, engines in zip(self.there, self._engines, strict=True):
            for engine in engines:
                engine.on_prefilled = partial(note, own, engine)


def fmin(first: float, second: float) -> float:
    """Returns the lesser of two numbers of which any may be NaN, for none."""
    if first != first:
        return second
    return first if second != second else min(first, second)
