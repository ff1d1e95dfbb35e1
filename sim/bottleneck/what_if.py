"""What widening each resource would buy, by simulating the same load again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.op_bounds import BOUNDS
from dynosim.hardware_models.timing.widened import widened_timer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.metrics import Metrics, summarize
from dynosim.sim.simulate import Simulation, cluster_spec, compile_timer
from dynosim.sim.workload.columns import Workload

FACTOR = 1.25
"""How much wider a resource is made."""
METRICS = ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "mean_e2el_ms")


@dataclass(frozen=True, kw_only=True)
class Widening:
    """One resource made wider, and the load's latencies and the capacity then.

    ``changes`` are relative, of :data:`METRICS`; ``capacity`` is the relative change of the
    requests per second where all requests of the load are there at once (of a closed loop: as it
    is). ``resource`` is in the words of :mod:`~.attribution`.
    """

    resource: str
    change: str
    metrics: Metrics
    changes: dict[str, float]
    capacity: float


def what_if(simulation: Simulation, *, seed: int = 0, factor: float = FACTOR) -> list[Widening]:
    """Returns every resource of the deployment made ``factor`` wider, one at a time.

    Ordered by capacity gained. Two simulations each, one in a closed loop.
    """
    load = simulation.result.workload
    base = _spec(simulation)
    before = summarize(simulation.result)
    at_most = _capacity(base, load, seed, before)
    found = []
    for resource, change, spec in _wider(simulation, factor):
        metrics = summarize(run_cluster(spec, load, seed))
        found.append(
            Widening(
                resource=resource,
                change=change,
                metrics=metrics,
                changes={name: metrics[name] / before[name] - 1.0 for name in METRICS},
                capacity=_capacity(spec, load, seed, metrics) / at_most - 1.0,
            )
        )
    return sorted(found, key=lambda one: -one.capacity)


def _capacity(spec: ClusterSpec, load: Workload, seed: int, metrics: Metrics) -> float:
    """Returns requests per second where none has to wait for others to arrive."""
    if load.max_concurrency is not None:
        return float(metrics["request_throughput"])
    at_once = replace(load, arrival_s=np.zeros(len(load)))
    return float(summarize(run_cluster(spec, at_once, seed))["request_throughput"])


def _spec(simulation: Simulation) -> ClusterSpec:
    return cluster_spec(
        simulation.deployment, simulation.engine, simulation.memory, simulation.timer
    )


def _wider(simulation: Simulation, factor: float) -> Iterator[tuple[str, str, ClusterSpec]]:
    """Yields each resource, what was done to it in words, and the cluster that has more of it."""
    base, engine = _spec(simulation), simulation.engine
    for bound, name in enumerate(BOUNDS):
        if name == "GPU links" and engine.args.gpus_per_replica == 1:
            continue
        timer = widened_timer(engine, bound, factor)
        spec = cluster_spec(simulation.deployment, engine, simulation.memory, timer)
        yield name, f"{factor:g} × as fast", spec
    yield from _limits(simulation, factor)
    blocks = int(base.num_blocks * factor)
    yield "KV blocks", f"{base.num_blocks:,} → {blocks:,}", replace(base, num_blocks=blocks)
    yield "host", f"{factor:g} × as fast", _faster_host(simulation, factor)
    front = base.frontend
    if front.request_s or front.input_token_s or front.output_s:
        faster = replace(
            front,
            request_s=front.request_s / factor,
            input_token_s=front.input_token_s / factor,
            output_s=front.output_s / factor,
        )
        yield "API servers", f"{factor:g} × as fast", replace(base, frontend=faster)
    more = int(base.replicas * factor)
    if more > base.replicas:
        yield "replicas", f"{base.replicas} → {more}", replace(base, replicas=more)


def _limits(simulation: Simulation, factor: float) -> Iterator[tuple[str, str, ClusterSpec]]:
    engine = simulation.engine
    args = engine.args
    assert args.max_num_seqs is not None, "unresolved engine"
    assert args.max_num_batched_tokens is not None, "unresolved engine"
    seqs = int(args.max_num_seqs * factor)
    wider = replace(engine, args=replace(args, max_num_seqs=seqs))
    yield "batch slots", f"{args.max_num_seqs:,} → {seqs:,}", _with_engine(simulation, wider)
    # SGLang takes whole KV pages.
    tokens = int(args.max_num_batched_tokens * factor) // engine.block_size * engine.block_size
    tokens = max(tokens, args.max_num_batched_tokens)
    wider = replace(engine, args=replace(args, max_num_batched_tokens=tokens))
    words = f"{args.max_num_batched_tokens:,} → {tokens:,}"
    yield "token budget", words, _with_engine(simulation, wider)


def _faster_host(simulation: Simulation, factor: float) -> ClusterSpec:
    backend = simulation.engine.backend
    faster = replace(
        backend,
        host_step_s=backend.host_step_s / factor,
        host_per_sequence_s=backend.host_per_sequence_s / factor,
    )
    return _with_engine(simulation, replace(simulation.engine, backend=faster))


def _with_engine(simulation: Simulation, engine: ResolvedEngine) -> ClusterSpec:
    """Returns the cluster with another engine in the same memory."""
    timer = compile_timer(engine)
    return cluster_spec(simulation.deployment, engine, simulation.memory, timer)
