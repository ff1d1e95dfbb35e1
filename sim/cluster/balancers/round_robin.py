"""Each rank in turn: SGLang's ``round_robin``."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.sim.cluster.balancers.base import Balancer, RankView


class RoundRobin:
    """Sends request 0 to rank 0, request 1 to rank 1, and so on around."""

    is_blind = True

    def __init__(self) -> None:
        self._next = 0

    def choose(self, ranks: Sequence[RankView], /) -> int:
        """Returns the rank after the last one."""
        chosen = self._next
        self._next = (chosen + 1) % len(ranks)
        return chosen


def make() -> Balancer:
    """Returns a balancer that takes turns."""
    return RoundRobin()
