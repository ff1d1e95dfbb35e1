"""Each replica in turn."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.sim.cluster.routers.base import ReplicaView, Router


class RoundRobin:
    """Sends request 0 to replica 0, request 1 to replica 1, and so on around."""

    is_blind = True

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns the replica after the last one."""
        chosen = self._next
        self._next = (chosen + 1) % len(replicas)
        return chosen


def make(num_replicas: int, seed: int) -> Router:
    """Returns a round-robin router."""
    return RoundRobin()
