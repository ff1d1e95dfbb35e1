"""One deployment under several draws of the same load: what part of a figure is luck."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The mean of a figure over seeds, and the standard error of that mean."""

    mean: float
    standard_error: float


def replicate(
    deployment: Deployment,
    spec: WorkloadSpec,
    *,
    seeds: Sequence[int],
    slos_ms: Mapping[str, float] | None = None,
) -> list[Metrics]:
    """Returns the metrics of a run for every seed of load and routing.

    The same seeds give every deployment the same loads (common random numbers), so that two of them
    differ by what they are and not by what they drew. Raises what
    :func:`~dynosim.sim.simulate.simulate` raises.
    """
    runs = []
    for seed in seeds:
        workload = build_workload(replace(spec, seed=seed))
        runs.append(simulate(deployment, workload, seed=seed).metrics(slos_ms))
    return runs


def estimates(runs: Sequence[Metrics]) -> dict[str, Estimate]:
    """Returns the estimate of every metric; its error is NaN for a single run."""
    found = {}
    for name in runs[0]:
        values = np.array([run[name] for run in runs])
        error = float(values.std(ddof=1)) / math.sqrt(len(runs)) if len(runs) > 1 else math.nan
        found[name] = Estimate(mean=float(values.mean()), standard_error=error)
    return found
