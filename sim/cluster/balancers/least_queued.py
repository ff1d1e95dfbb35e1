"""The rank with the least of four times its waiting and its running requests: vLLM's rule."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.sim.cluster.balancers.base import Balancer, RankView

WAITING_WEIGHT = 4
"""How many running requests a waiting one counts for (vLLM, v1/engine/core_client.py)."""


class LeastQueued:
    """Shuns ranks where requests queue."""

    is_blind = False

    def choose(self, ranks: Sequence[RankView], /) -> int:
        """Returns the rank of the least score; of equals the first."""
        return min(range(len(ranks)), key=lambda i: _score(ranks[i]))


def make() -> Balancer:
    """Returns vLLM's balancer."""
    return LeastQueued()


def _score(rank: RankView) -> int:
    # What waits is outstanding too.
    return rank.outstanding + (WAITING_WEIGHT - 1) * rank.waiting
