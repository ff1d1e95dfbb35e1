"""What clients do when an answer does not come, and how much they ask for at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

from dynosim.sim.random_streams import draws


@dataclass(frozen=True, kw_only=True)
class ClientPolicy:
    """Patience, retries and limits of every client; by default each waits for ever, tries once,
    and asks for as much as it likes."""

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
    client_cancel_share: Annotated[float, Ge(0), Le(1)] = 0.0
    """Share of users who may go away while their answer comes."""
    client_cancel_after_s: Annotated[float, Gt(0)] = 5.0
    """Mean seconds after the first token until such a user does (exponential)."""
    client_max_in_flight: Annotated[int, Ge(1)] | None = None
    """Requests that a client has in flight at most; further ones wait at the client."""

    def wait_s(self, request: int, attempt: int, seed: int) -> float:
        """Returns the wait after the ``attempt``-th attempt (from 1) of a request."""
        wait_s = min(self.client_backoff_s * 2.0 ** (attempt - 1), self.client_backoff_max_s)
        if not self.client_jitter or not wait_s:
            return wait_s
        (draw,) = draws(seed, "retries", (request, attempt), 1).tolist()
        return wait_s * (1.0 - self.client_jitter * float(draw))

    def leaves_after_s(self, request: int, seed: int) -> float:
        """Returns the seconds after the first token when the user goes away; infinity if never."""
        if not self.cancels:
            return math.inf
        may, when = draws(seed, "cancellations", (request, 0), 2).tolist()
        if may >= self.client_cancel_share:
            return math.inf
        return -math.log1p(-when) * self.client_cancel_after_s

    @property
    def cancels(self) -> bool:
        """Whether users may go away while their answers come."""
        return self.client_cancel_share > 0.0

    @property
    def gives_up(self) -> bool:
        """Whether clients do anything but wait for their first attempt."""
        return self.client_timeout_s is not None or self.client_retries > 0 or self.cancels


PATIENT = ClientPolicy()
"""Waits for ever and tries once."""
