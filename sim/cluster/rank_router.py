"""Routes to data-parallel ranks that share nothing: to a replica first, then to its rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dynosim.sim.cluster.balancers.base import Balancer, RankView
from dynosim.sim.cluster.routers.base import ReplicaView, Router


class RankSum:
    """The ranks of one replica, as a router sees them."""

    def __init__(self, ranks: Sequence[ReplicaView]) -> None:
        self._ranks = ranks

    @property
    def outstanding(self) -> int:
        """Unfinished requests of all ranks."""
        return sum(rank.outstanding for rank in self._ranks)


class RankRouter:
    """Chooses among the ranks of all replicas, those of one replica side by side.

    ``router`` chooses the replica and that replica's own of ``balancers`` the rank.
    """

    def __init__(self, router: Router, balancers: list[Balancer], ranks: int) -> None:
        self.is_blind = router.is_blind and all(b.is_blind for b in balancers)
        self._router = router
        self._balancers = balancers
        self._ranks = ranks

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns the index of a rank, counted over all replicas."""
        size = self._ranks
        groups = [replicas[at : at + size] for at in range(0, len(replicas), size)]
        group = self._router.choose(request, [RankSum(ranks) for ranks in groups])
        ranks = cast("Sequence[RankView]", groups[group])
        return group * size + self._balancers[group].choose(ranks)
