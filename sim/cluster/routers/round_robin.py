"""Each replica in turn."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.sim.cluster.routers.base import ReplicaView, Router, RouterContext


class RoundRobin:
    """Sends request 0 to replica 0, request 1 to replica 1, and so on around."""

    is_blind = True

    def __init__(self, num_replicas: int) -> None:
        self._num_replicas = num_replicas
        self._next = 0

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns the first replica from the one after the last choice on."""
        size, start = self._num_replicas, self._next
        place = start
        if len(replicas) < size:
            behind = [(view.number - start) % size for view in replicas]
            place = behind.index(min(behind))
        self._next = (replicas[place].number + 1) % size
        return place


def make(context: RouterContext) -> Router:
    """Returns a round-robin router."""
    return RoundRobin(context.num_replicas)
