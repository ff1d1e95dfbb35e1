"""The rank with the fewest requests: SGLang's ``shortest_queue``."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.sim.cluster.balancers.base import Balancer, RankView


class ShortestQueue:
    """Counts waiting and running requests alike."""

    is_blind = False

    def choose(self, ranks: Sequence[RankView], /) -> int:
        """Returns the rank with the fewest requests; of equals the first."""
        return min(range(len(ranks)), key=lambda i: ranks[i].outstanding)


def make() -> Balancer:
    """Returns a balancer that joins the shortest queue."""
    return ShortestQueue()
