"""Routes to data-parallel ranks that share nothing: to a replica first, then to its rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dynosim.sim.cluster.balancers.base import Balancer, RankView
from dynosim.sim.cluster.routers.base import ReplicaView, Router


class RankSum:
    """The ranks of one replica, as a router sees them."""

    def __init__(self, number: int, ranks: Sequence[ReplicaView]) -> None:
        self.number = number
        self._ranks = ranks

    @property
    def outstanding(self) -> int:
        """Unfinished requests of all ranks."""
        return sum(rank.outstanding for rank in self._ranks)

    @property
    def prefilling(self) -> int:
        """Requests of all ranks that have no token yet."""
        return sum(rank.prefilling for rank in self._ranks)

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens to compute of all ranks."""
        return sum(rank.prefill_tokens for rank in self._ranks)

    @property
    def decode_blocks(self) -> int:
        """KV blocks of the prompts in flight at all ranks."""
        return sum(rank.decode_blocks for rank in self._ranks)

    @property
    def waiting(self) -> int:
        """Requests of all ranks that are not running yet."""
        return sum(rank.waiting for rank in self._ranks)

    @property
    def kv_use(self) -> float:
        """Mean share of KV blocks held."""
        return sum(rank.kv_use for rank in self._ranks) / len(self._ranks)


class RankRouter:
    """Chooses among the ranks of all replicas, those of one replica numbered side by side.

    ``router`` chooses the replica and that replica's own of ``balancers`` the rank.
    """

    def __init__(self, router: Router, balancers: list[Balancer], ranks: int) -> None:
        self.is_blind = router.is_blind and all(b.is_blind for b in balancers)
        self._router = router
        self._balancers = balancers
        self._ranks = ranks

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns the place of a rank among those shown."""
        groups: dict[int, list[int]] = {}
        for place, rank in enumerate(replicas):
            groups.setdefault(rank.number // self._ranks, []).append(place)
        shown = {number: [replicas[at] for at in places] for number, places in groups.items()}
        sums = [RankSum(number, ranks) for number, ranks in shown.items()]
        number = sums[self._router.choose(request, sums)].number
        ranks = cast("Sequence[RankView]", shown[number])
        return groups[number][self._balancers[number].choose(ranks)]
