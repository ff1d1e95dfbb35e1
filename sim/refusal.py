"""Why a request was not served."""

from __future__ import annotations

from enum import IntEnum


class Refusal(IntEnum):
    """Reasons, as a run's result keeps them; 0 for none."""

    NONE = 0
    TOO_LONG = 1
    """Longer than ``max_model_len``: no engine would take it."""
    QUEUE_DEPTH = 2
    """Shed: too many requests at the replicas."""
    KV_USE = 3
    """Shed: too many KV blocks held."""
    ROUTER_QUEUE = 4
    """Shed: too many requests waited at the router."""
    DEADLINE = 5
    """Shed: its first token would have come too late."""
    FAILED = 6
    """Lost: its replica or router failed, and its client did not try again."""
    TIMED_OUT = 7
    """Lost: its client waited too long for a first token, and did not try again."""
    CANCELLED = 8
    """Neither answered nor lost: its user went away while the answer came."""
