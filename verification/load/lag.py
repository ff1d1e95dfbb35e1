"""How late the load generator itself is: what a server would be blamed for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.sim.quantiles import median, quantiles
from dynosim.verification.observed import ObservedRequest

_EVERY_S = 0.01
_TIMER_S = 1e-3
"""Timers are this late by themselves: epoll waits for whole ms (asyncio's selector events)."""


@dataclass(frozen=True, kw_only=True)
class Lag:
    """99th percentiles in s: requests sent after they were due, events read after they came."""

    sending_s: float
    reading_s: float

    @property
    def worst_s(self) -> float:
        """The larger of the two."""
        return max(self.sending_s, self.reading_s)

    def facts(self) -> dict[str, float]:
        """Returns what is told of it besides what the engine says, in ms."""
        return {
            "load_generator_send_lag_p99_ms": round(self.sending_s * 1e3, 3),
            "load_generator_read_lag_p99_ms": round(self.reading_s * 1e3, 3),
        }


class LoopWatch:
    """Notes how late the event loop comes to things that are due, while it is watched."""

    def __init__(self) -> None:
        self.late_s: list[float] = []

    async def watch(self, now_s: Callable[[], float]) -> None:
        """Runs until it is cancelled."""
        while True:
            due_s = now_s() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self.late_s.append(max(now_s() - due_s - _TIMER_S, 0.0))


def lag_of(requests: Sequence[ObservedRequest], late_s: Sequence[float]) -> Lag:
    """Returns the lag of requests that were sent, and of a loop that was watched."""
    sent = [r.sent_s - r.planned_s for r in requests if r.token_s]
    return Lag(sending_s=_p99(sent), reading_s=_p99(late_s))


def check_lag(lag: Lag, requests: Sequence[ObservedRequest], most_share: float) -> str | None:
    """Returns a note where the lag is a tenth of what is allowed or more, None where it is less.

    Raises UserError where it is more than ``most_share`` of the median TTFT.
    """
    ttft_s = median(np.array([r.token_s[0] - r.sent_s for r in requests if r.error is None]))
    share = lag.worst_s / ttft_s if ttft_s > 0 else float("inf")
    said = (
        f"the load generator was {lag.worst_s * 1e3:.2f} ms late (p99), "
        f"{share:.1%} of the median TTFT of {ttft_s * 1e3:.4g} ms"
    )
    if share > most_share:
        raise UserError(
            f"{said}: it would have measured itself",
            where="load",
            hint=f"allowed: {most_share:.0%}; run it on another machine, or with less load",
        )
    return said if share > most_share / 10 else None


def _p99(values_s: Sequence[float]) -> float:
    return float(quantiles(np.asarray(values_s), [0.99])[0]) if len(values_s) else 0.0
