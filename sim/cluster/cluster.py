"""Runs a workload through replicas behind a router, and returns what happened when."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.registry import find_module
from dynosim.sim.cluster.frontend import IDLE, Frontend
from dynosim.sim.cluster.requests import Requests, accepted
from dynosim.sim.cluster.routers.base import Router
from dynosim.sim.engine.engine import Engine, EngineLimits
from dynosim.sim.engine.timing import Timer
from dynosim.sim.results import Recorder, RunResult
from dynosim.sim.workload.columns import Workload


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """Equal replicas behind one router; no request longer than ``max_model_len`` is accepted.

    ``num_blocks`` are the KV blocks that requests can hold (of vLLM's ``num_gpu_blocks`` one is its
    null block). ``frontend_s`` passes between the client's send and the engine's queue, besides
    what the ``frontend``'s processors take.
    """

    timer: Timer
    limits: EngineLimits
    num_blocks: int
    max_model_len: int
    replicas: int = 1
    router: str = "round_robin"
    frontend_s: float = 0.0
    frontend: Frontend = IDLE


def make_router(name: str, num_replicas: int, seed: int) -> Router:
    """Returns the router called ``name``; raises UserError with the nearest names."""
    module = find_module("dynosim.sim.cluster.routers", "router", name)
    router: Router = module.make(num_replicas, seed)
    return router


def run_cluster(spec: ClusterSpec, workload: Workload, seed: int = 0) -> RunResult:
    """Returns the run of ``workload``; raises UserError where it cannot run at all."""
    limits = spec.limits
    requests = Requests(workload, limits)
    router = make_router(spec.router, spec.replicas, seed)
    engines = [
        Engine(spec.timer, limits, spec.num_blocks, requests.blocks_per_unit)
        for _ in range(spec.replicas)
    ]
    fitting = accepted(workload, spec.max_model_len, spec.num_blocks, limits.block_size)
    recorder = Recorder(workload)
    if workload.max_concurrency is None:
        recorder.send(fitting, spec.frontend, spec.replicas, spec.frontend_s)
    # Where nothing that an engine does can reach another, each runs through its own requests.
    if workload.max_concurrency is None and router.is_blind:
        from dynosim.sim.cluster.apart import run_apart

        run_apart(engines, router, requests, fitting, recorder)
    else:
        from dynosim.sim.cluster.together import Together

        Together(engines, router, requests, recorder, spec.frontend, spec.frontend_s).run(fitting)
    for engine in engines:
        engine.kv.check()
        assert engine.kv.used_blocks == 0, "a finished run holds KV blocks"
    return recorder.result([engine.log for engine in engines], spec.num_blocks, spec.frontend)
