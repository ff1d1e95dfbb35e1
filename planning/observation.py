"""What a deployment did under one load: latencies after the warm-up, and who was content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dynosim.accuracy.expectation import Expectation, expect
from dynosim.accuracy.intervals import ErrorModel
from dynosim.hardware_models.arrays import FloatArray
from dynosim.planning.load import Load, workload_at
from dynosim.search.slo import Slo, goodput_limits
from dynosim.search.stability import instability
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics, request_latencies_s
from dynosim.sim.simulate import Simulation, simulate
from dynosim.sim.workload.spec import WorkloadSpec

PERCENTILES = (50, 90, 95, 99)
LEAST_QUARTER = 16
"""Fewer requests in a quarter of a run say nothing about a trend."""
STAY_GROWTH = 0.03
"""Seconds that a stay may grow per second of arrivals: 3 % more arrivals than are served."""
STAY_RATIO = 1.2


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One simulated run under ``load``.

    ``latencies_ms`` has ``p95_ttft_ms`` and the like, of the requests after the warm-up (ITL: of
    all). ``ok`` of ``total`` requests were answered within every limit that one request can keep.
    ``in_flight`` is the mean number in the system. ``is_stable`` is False where the queue grew for
    as long as the load lasted.
    """

    load: Load
    latencies_ms: Mapping[str, float]
    ok: int
    total: int
    refused: int
    is_stable: bool
    request_throughput: float
    metrics: Metrics
    expectation: Expectation
    simulation: Simulation = field(repr=False, compare=False)

    @property
    def in_flight(self) -> float:
        """Requests in the system in the mean (Little's law, where the load does not say)."""
        if self.load.kind == "concurrency":
            return self.load.size
        return self.load.size * self.mean_e2el_s

    @property
    def mean_e2el_s(self) -> float:
        """Mean stay of a request, after the warm-up."""
        return self.latencies_ms["mean_e2el_ms"] / 1e3

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """Mean milliseconds of a time to first token, by what it was spent on."""
        names = ("frontend", "queue", "prefill")
        return {name: self.latencies_ms[f"mean_{name}_ms"] for name in names}

    def excess(self, slos: Sequence[Slo]) -> float:
        """Returns the largest relative excess over a limit; ≤ 0 where all are kept."""
        if self.refused or not self.is_stable:
            return float("inf")
        return max(slo.violation(self.latencies_ms) for slo in slos)


def observe(
    deployment: Deployment,
    spec: WorkloadSpec,
    load: Load,
    slos: Sequence[Slo],
    seed: int,
    errors: ErrorModel | None = None,
) -> Observation:
    """Returns what happened; raises what :func:`dynosim.sim.simulate.simulate` raises.

    ``errors`` is by default the shipped model of prediction errors.
    """
    workload = workload_at(spec, load, seed)
    simulation = simulate(deployment, workload, seed=seed)
    result = simulation.result
    metrics = simulation.metrics()
    # Where a fixed number of requests leaves fewer waves than two, half of them warm up.
    first = min(load.warm_up, len(workload) // 2)
    latencies_s = {k: v[first:] for k, v in request_latencies_s(result).items()}
    good = ~np.isnan(latencies_s["e2el"])
    for kind, limit_ms in goodput_limits(tuple(slos)).items():
        good &= np.nan_to_num(latencies_s[kind], nan=0.0) * 1e3 <= limit_ms
    return Observation(
        load=load,
        latencies_ms={
            **{k: v for k, v in metrics.items() if k.endswith("_itl_ms")},
            **{k: v for name, s in latencies_s.items() for k, v in _statistics(name, s).items()},
        },
        ok=int(good.sum()),
        total=len(good),
        refused=int(metrics["failed"]),
        is_stable=_is_stable(simulation),
        request_throughput=metrics["request_throughput"],
        metrics=metrics,
        expectation=expect(simulation, metrics, errors),
        simulation=simulation,
    )


def _statistics(name: str, values_s: FloatArray) -> Metrics:
    known = values_s[~np.isnan(values_s)] * 1e3
    names = ["mean", "median", "std", *(f"p{p}" for p in PERCENTILES)]
    if not len(known):
        return {f"{statistic}_{name}_ms": float("nan") for statistic in names}
    at = np.quantile(known, [p / 100 for p in PERCENTILES]).tolist()
    values = [float(known.mean()), at[0], float(known.std()), *at]
    return {f"{s}_{name}_ms": value for s, value in zip(names, values, strict=True)}


def _is_stable(simulation: Simulation) -> bool:
    result = simulation.result
    if result.workload.max_concurrency is not None:
        return True
    done = np.flatnonzero(result.completed)
    sent_s, finish_s = result.sent_s[done], result.finish_s[done]
    is_queueing = instability(sent_s, result.scheduled_s[done], finish_s) > 0
    return not (is_queueing or stays_grow(sent_s, finish_s))


def stays_grow(sent_s: FloatArray, finish_s: FloatArray) -> bool:
    """Whether stays grow for as long as requests arrive: a backlog inside of ever larger batches.

    Served at a share s of the rate at which they arrive, requests pile up so that every second of
    arrivals adds 1/s - 1 seconds to a stay (the fluid limit). The second and the last quarter are
    compared: the first fills an empty engine.
    """
    quarter = len(sent_s) // 4
    if quarter < LEAST_QUARTER:
        return False
    parts = (slice(quarter, 2 * quarter), slice(-quarter, None))
    (early_s, early_at), (late_s, late_at) = (
        (float(np.median(finish_s[p] - sent_s[p])), float(np.median(sent_s[p]))) for p in parts
    )
    growth = (late_s - early_s) / max(late_at - early_at, 1e-9)
    return growth > STAY_GROWTH and late_s > STAY_RATIO * early_s
