"""What widening each resource would buy, by simulating the same load again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dynosim.sim.bottleneck.wider_engine import wider_engines
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.metrics import Metrics, summarize
from dynosim.sim.simulate import Simulation, cluster_spec, scaled
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
    before = summarize(simulation.result)
    base = cluster_spec(simulation.deployment, simulation.decode, simulation.prefill)
    at_most = _capacity(_whole(simulation, base), load, seed, before)
    found = []
    for resource, change, wider in _wider(simulation, base, factor):
        spec = _whole(simulation, wider)
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


def _whole(simulation: Simulation, spec: ClusterSpec) -> ClusterSpec:
    """Returns a cluster with the deployment's scaling, if it has one."""
    deployment, load = simulation.deployment, simulation.result.workload
    if not deployment.is_scaled:
        return spec
    return scaled(deployment, spec, simulation.decode, simulation.prefill, load)[0]


def _capacity(spec: ClusterSpec, load: Workload, seed: int, metrics: Metrics) -> float:
    """Returns requests per second where none has to wait for others to arrive."""
    if not load.is_open:
        return float(metrics["request_throughput"])
    at_once = replace(load, arrival_s=np.zeros(len(load)))
    return float(summarize(run_cluster(spec, at_once, seed))["request_throughput"])


def _wider(
    simulation: Simulation, base: ClusterSpec, factor: float
) -> Iterator[tuple[str, str, ClusterSpec]]:
    """Yields each resource, what was done to it in words, and the cluster that has more of it."""
    deployment, decode, prefill = simulation.deployment, simulation.decode, simulation.prefill
    for name, change, planned in wider_engines(decode, factor):
        yield name, change, cluster_spec(deployment, planned, prefill)
    # Of pools that scale, others decide how many replicas there are.
    is_fixed = not deployment.is_scaled
    yield from _more_replicas(base, factor) if is_fixed else ()
    yield from _wider_tiers(base, factor)
    if prefill is None or base.prefill is None:
        return
    for name, change, planned in wider_engines(prefill, factor):
        yield f"prefill: {name}", change, cluster_spec(deployment, decode, planned)
    for name, change, pool in _more_replicas(base.prefill.pool, factor) if is_fixed else ():
        yield f"prefill: {name}", change, replace(base, prefill=replace(base.prefill, pool=pool))
    for name, change, pool in _wider_tiers(base.prefill.pool, factor):
        yield f"prefill: {name}", change, replace(base, prefill=replace(base.prefill, pool=pool))
    transfer = base.prefill.transfer
    faster = replace(
        transfer,
        egress_bytes_s=transfer.egress_bytes_s * factor,
        ingress_bytes_s=transfer.ingress_bytes_s * factor,
    )
    wider = replace(base.prefill, transfer=faster)
    yield "KV transfer links", _times(factor), replace(base, prefill=wider)


def _more_replicas(spec: ClusterSpec, factor: float) -> Iterator[tuple[str, str, ClusterSpec]]:
    more = int(spec.replicas * factor)
    if more > spec.replicas:
        yield "replicas", f"{spec.replicas} → {more}", replace(spec, replicas=more)


def _wider_tiers(base: ClusterSpec, factor: float) -> Iterator[tuple[str, str, ClusterSpec]]:
    """Yields tiers that hold more, and links to the host that are faster."""
    tiers = base.tiers
    if tiers is None:
        return
    larger = tuple(replace(t, capacity_bytes=t.capacity_bytes * factor) for t in tiers.tiers)
    yield "KV tiers", f"{factor:g} × as large", replace(base, tiers=replace(tiers, tiers=larger))
    faster = replace(tiers, link_bytes_s=tiers.link_bytes_s * factor)
    yield "host links", _times(factor), replace(base, tiers=faster)


def _times(factor: float) -> str:
    return f"{factor:g} × as fast"
