"""Runs a workload through replicas behind a router, and returns what happened when."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import simpy

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module
from dynosim.sim.cluster.routers.base import Router
from dynosim.sim.cluster.worker import Worker
from dynosim.sim.engine.engine import Engine, EngineLimits
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.timing import Timer
from dynosim.sim.random_streams import stream
from dynosim.sim.results import Recorder, RunResult
from dynosim.sim.workload.columns import Workload


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """Equal replicas behind one router; no request longer than ``max_model_len`` is accepted.

    ``num_blocks`` are the KV blocks that requests can hold (of vLLM's ``num_gpu_blocks`` one is its
    null block). ``frontend_s`` passes between the client's send and the engine's queue.
    """

    timer: Timer
    limits: EngineLimits
    num_blocks: int
    max_model_len: int
    replicas: int = 1
    router: str = "round_robin"
    frontend_s: float = 0.0


def make_router(name: str, num_replicas: int, seed: int) -> Router:
    """Returns the router called ``name``; raises UserError with the nearest names."""
    module = find_module("dynosim.sim.cluster.routers", "router", name)
    router: Router = module.make(num_replicas, stream(seed, "routing"))
    return router


def run_cluster(spec: ClusterSpec, workload: Workload, seed: int = 0) -> RunResult:
    """Returns the run of ``workload``; raises UserError where it cannot run at all."""
    return _Cluster(spec, workload, seed).run()


class _Cluster:
    """One run: the SimPy environment, its workers and the requests on their way."""

    def __init__(self, spec: ClusterSpec, workload: Workload, seed: int) -> None:
        limits = spec.limits
        self._spec = spec
        self._workload = workload
        self._env = simpy.Environment()
        self._units, per_unit = prefix_units(workload, limits)
        self._router = make_router(spec.router, spec.replicas, seed)
        self._workers = [
            Worker(
                self._env,
                Engine(spec.timer, limits, spec.num_blocks, per_unit),
                self._on_finish,
                lambda: self._horizon_s,
            )
            for _ in range(spec.replicas)
        ]
        self._accepted = self._acceptable()
        self._recorder = Recorder(workload)
        self._prompts = workload.input_tokens.tolist()
        self._outputs = workload.output_tokens.tolist()
        self._send_s = workload.arrival_s.tolist()
        self._slots = workload.max_concurrency or 0
        priority = workload.priority
        self._priorities = None if priority is None else priority.tolist()
        self._in_flight = 0
        # Where answers make room for requests, an engine may not run ahead of the clock at all.
        self._horizon_s = -math.inf
        self._backlog: deque[int] = deque()

    def _acceptable(self) -> list[int]:
        """Returns the requests that fit the model's length; the others are refused at once."""
        spec = self._spec
        total = self._workload.input_tokens + self._workload.output_tokens
        fits = total <= spec.max_model_len
        # The last token is sampled but never stored.
        longest = int(total[fits].max(initial=1)) - 1
        blocks = -(-longest // spec.limits.block_size)
        if blocks > spec.num_blocks:
            raise UserError(
                f"a request of {longest + 1} tokens needs {blocks} KV blocks; "
                f"the whole pool has {spec.num_blocks}",
                where="max_model_len",
                hint="give the engine more KV memory, or a smaller max_model_len",
            )
        return np.flatnonzero(fits).tolist()

    def run(self) -> RunResult:
        is_capped = self._workload.max_concurrency is not None
        self._env.process(self._capped_arrivals() if is_capped else self._open_arrivals())
        self._env.run()
        for worker in self._workers:
            worker.engine.kv.check()
            assert worker.engine.kv.used_blocks == 0, "a finished run holds KV blocks"
        logs = [w.engine.log for w in self._workers]
        return self._recorder.result(logs, self._spec.num_blocks, self._spec.frontend_s)

    def _open_arrivals(self) -> Generator[simpy.Event, None, None]:
        """Brings every request to the router at its own time, whatever becomes of the others."""
        now_s = 0.0
        for index in self._accepted:
            send_s = self._recorder.sent_s[index] = self._send_s[index]
            arrival_s = send_s + self._spec.frontend_s
            if arrival_s > now_s:
                self._horizon_s = arrival_s
                yield self._env.timeout(arrival_s - self._env.now)
                now_s = arrival_s
            self._route(index)
        self._horizon_s = math.inf

    def _capped_arrivals(self) -> Generator[simpy.Event, None, None]:
        """Sends every request at its time, or when a slot of ``max_concurrency`` is free."""
        now_s = 0.0
        for index in self._accepted:
            send_s = self._send_s[index]
            if send_s > now_s:
                yield self._env.timeout(send_s - self._env.now)
                now_s = send_s
            self._backlog.append(index)
            self._send_next(now_s)

    def _send_next(self, now_s: float) -> None:
        """Sends the oldest request that waits for a slot, if there is both."""
        if not self._backlog or self._in_flight >= self._slots:
            return
        self._in_flight += 1
        index = self._backlog.popleft()
        self._recorder.sent_s[index] = now_s
        if self._spec.frontend_s > 0.0:
            arrival = self._env.timeout(self._spec.frontend_s, index)
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
        units = self._units[index] if self._units else []
        priority = self._priorities[index] if self._priorities else 0
        seq = Sequence(index, self._prompts[index], self._outputs[index], units, priority)
        self._workers[chosen].submit(seq)

    def _on_finish(self, seq: Sequence, time_s: float) -> None:
        self._recorder.record(seq, time_s)
        self._in_flight -= 1
        self._send_next(time_s)


def prefix_units(workload: Workload, limits: EngineLimits) -> tuple[list[list[int]], int]:
    """Returns each request's prefix ids at the engine's granularity, and KV blocks per id.

    Trace blocks coarser than a KV block stay whole (the trace says nothing of what is shared
    inside one); finer ones are merged, and the last id of a merged group names it, which is
    enough since ids are chained. Raises UserError where neither size divides the other.
    """
    trace_block, block = workload.prefix_block_tokens, limits.block_size
    if not trace_block or not limits.enable_prefix_caching or not len(workload.prefix_ids):
        return [], 1
    ids = workload.prefix_ids.tolist()
    bounds = workload.prefix_offsets.tolist()
    if trace_block % block == 0:
        return [ids[a:b] for a, b in itertools.pairwise(bounds)], trace_block // block
    if block % trace_block == 0:
        every = block // trace_block
        return [ids[a + every - 1 : b : every] for a, b in itertools.pairwise(bounds)], 1
    raise UserError(
        f"KV blocks of {block} tokens do not line up with the workload's prefix blocks of "
        f"{trace_block}",
        where="block_size",
        hint=f"choose a divisor or a multiple of {trace_block}",
    )
