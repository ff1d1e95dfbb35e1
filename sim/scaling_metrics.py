"""What replicas that came and went cost, and what clients had to go through."""

from __future__ import annotations

import numpy as np

from dynosim.sim.cluster.scaling.states import ScalingLog, State
from dynosim.sim.metrics import Metrics
from dynosim.sim.results import RunResult

_USED = tuple(state for state in State if state != State.OFF)
_RESERVE = (State.WARM, State.ASLEEP)


def scaling_metrics(
    result: RunResult, log: ScalingLog, gpus_per_replica: int, usd_per_gpu_hour: float | None
) -> Metrics:
    """Returns GPU-hours and their cost, replicas, starts and retries.

    A replica is paid for from the moment it is asked for until it is gone: while it starts, waits
    in reserve or asleep, drains, or has failed. Times of the whole run, arrivals to last answer.
    """
    hours = gpus_per_replica / 3600.0
    gpu_hours = log.seconds(_USED) * hours
    _, ready = log.counts([State.READY])
    price = float("nan") if usd_per_gpu_hour is None else usd_per_gpu_hour
    end_s = log.end_s or float("nan")
    started = len(log.start_s)
    return {
        "gpu_hours": gpu_hours,
        "gpu_hours_starting": log.seconds([State.STARTING]) * hours,
        "gpu_hours_reserve": log.seconds(_RESERVE) * hours,
        "usd_total": gpu_hours * price,
        "mean_gpus": gpu_hours * 3600.0 / end_s,
        "replicas_mean": log.seconds([State.READY]) / end_s,
        "replicas_min": int(ready.min(initial=log.num_replicas)),
        "replicas_max": int(ready.max(initial=0)),
        "starts": started,
        "mean_start_s": float(log.start_s.mean()) if started else float("nan"),
        "max_start_s": float(log.start_s.max()) if started else float("nan"),
        "start_fallbacks": log.fallbacks,
        "crashes": log.crashes,
        "requests_held": log.held,
        "retries": int(np.maximum(log.attempts - 1, 0).sum()),
    }
