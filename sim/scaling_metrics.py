"""What replicas that came and went cost, and what clients had to go through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.sim.cluster.scaling.states import ScalingLog, State
from dynosim.sim.metrics import Metrics

_USED = tuple(state for state in State if state != State.OFF)
_RESERVE = (State.WARM, State.ASLEEP)
_NAN = float("nan")


@dataclass(frozen=True, kw_only=True)
class ScaledPool:
    """A pool's replicas over a run, and their GPUs; None where these have no price."""

    log: ScalingLog
    gpus_per_replica: int
    usd_per_gpu_hour: float | None

    def gpu_hours(self, *states: State) -> float:
        """Returns the GPU-hours spent in any of some states."""
        return self.log.seconds(states) * (self.gpus_per_replica / 3600.0)


def scaling_metrics(pool: ScaledPool, prefill: ScaledPool | None = None) -> Metrics:
    """Returns GPU-hours and their cost, replicas, starts and retries.

    A replica is paid for from the moment it is asked for until it is gone: while it starts, waits
    in reserve or asleep, drains, or has failed. Times of the whole run, arrivals to last answer.
    With a ``prefill`` pool hours and cost are of both; what that pool did by itself, and its share
    of the hours, is named ``prefill_``, and the rest is of the other.
    """
    pools = [pool] if prefill is None else [pool, prefill]
    gpu_hours = sum(own.gpu_hours(*_USED) for own in pools)
    end_s = pool.log.end_s or _NAN
    metrics = {
        "gpu_hours": gpu_hours,
        "gpu_hours_starting": sum(own.gpu_hours(State.STARTING) for own in pools),
        "gpu_hours_reserve": sum(own.gpu_hours(*_RESERVE) for own in pools),
        "usd_total": sum(_usd(own) for own in pools),
        "mean_gpus": gpu_hours * 3600.0 / end_s,
        **_replicas(pool.log, end_s),
        "retries": int(np.maximum(pool.log.attempts - 1, 0).sum()),
    }
    if prefill is None:
        return metrics
    own = {"gpu_hours": prefill.gpu_hours(*_USED)} | _replicas(prefill.log, end_s)
    return metrics | {f"prefill_{name}": value for name, value in own.items()}


def _usd(pool: ScaledPool) -> float:
    price = _NAN if pool.usd_per_gpu_hour is None else pool.usd_per_gpu_hour
    return pool.gpu_hours(*_USED) * price


def _replicas(log: ScalingLog, end_s: float) -> Metrics:
    """Returns how many replicas of one pool there were, and what became of them."""
    _, ready = log.counts([State.READY])
    started = len(log.start_s)
    return {
        "replicas_mean": log.seconds([State.READY]) / end_s,
        "replicas_min": int(ready.min(initial=log.num_replicas)),
        "replicas_max": int(ready.max(initial=0)),
        "starts": started,
        "mean_start_s": float(log.start_s.mean()) if started else _NAN,
        "max_start_s": float(log.start_s.max()) if started else _NAN,
        "start_fallbacks": log.fallbacks,
        "crashes": log.crashes,
        "requests_held": log.held,
    }
