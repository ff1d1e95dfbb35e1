"""What clients do when an answer does not come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

from dynosim.sim.random_streams import draws


@dataclass(frozen=True, kw_only=True)
class ClientPolicy:
    """Patience and retries of every client; without either, a failed request is lost."""

    client_timeout_s: Annotated[float, Gt(0)] | None = None
    """Seconds without a first token after which a client gives an attempt up."""
    client_retries: Annotated[int, Ge(0)] = 0
    """Further attempts after one that failed, timed out or was turned away."""
    client_backoff_s: Annotated[float, Ge(0)] = 0.5
    """Seconds before the first retry; each further one waits twice as long."""
    client_backoff_max_s: Annotated[float, Ge(0)] = 8.0
    """Longest wait before a retry."""
    client_jitter: Annotated[float, Ge(0), Le(1)] = 0.25
    """Share of the wait that is drawn anew each time, so that retries do not come together."""

    def wait_s(self, request: int, attempt: int, seed: int) -> float:
        """Returns the wait after the ``attempt``-th attempt (from 1) of a request."""
        wait_s = min(self.client_backoff_s * 2.0 ** (attempt - 1), self.client_backoff_max_s)
        if not self.client_jitter or not wait_s:
            return wait_s
        (draw,) = draws(seed, "retries", (request, attempt), 1).tolist()
        return wait_s * (1.0 - self.client_jitter * float(draw))

    @property
    def gives_up(self) -> bool:
        """Whether clients do anything but wait for their first attempt."""
        return self.client_timeout_s is not None or self.client_retries > 0


PATIENT = ClientPolicy()
"""Waits for ever and tries once."""
