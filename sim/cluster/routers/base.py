"""The router interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ReplicaView(Protocol):
    """What a router may see of a replica."""

    @property
    def outstanding(self) -> int:
        """Requests sent to the replica and not yet finished."""
        ...


class Router(Protocol):
    """Returns, per request, the index of the replica that serves it.

    ``is_blind`` tells that the choice depends on nothing but the order of the requests; such a
    router is asked ahead of the clock.
    """

    is_blind: bool

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns a replica index for request number ``request``."""
        ...
