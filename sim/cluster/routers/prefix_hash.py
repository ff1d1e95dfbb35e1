"""Prompts that begin alike go to one replica, as long as it is not too busy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dynosim.sim.cluster.hash_ring import HashRing, hash_key, mixed
from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.cluster.routers.base import ReplicaView, Router, RouterContext

OPTIONS = ("router_prefix_blocks", "router_load_bound")


class PrefixHash:
    """Consistent hashing of the first prefix blocks with bounded loads.

    No replica gets more than ``bound`` times the mean of unfinished requests, the new one counted:
    who is full passes on to the next on the ring (Mirrokni, Thorup and Zadimoghaddam 2018). Without
    a bound a popular prefix can overload its replica.
    """

    def __init__(self, ring: HashRing, prompts: Prompts, num_blocks: int, bound: float) -> None:
        self.is_blind = math.isinf(bound)
        self._ring = ring
        self._prompts = prompts
        self._num_blocks = num_blocks
        self._bound = bound

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns the first replica on the ring that has room."""
        blocks = self._prompts.leading_blocks(request, self._num_blocks)
        key = hash_key(blocks) if blocks else mixed(~request)
        if self.is_blind:
            return self._ring.first_of(key, replicas)
        loads = [view.outstanding for view in replicas]
        most = math.ceil(self._bound * (sum(loads) + 1) / len(loads))
        place_of = {view.number: place for place, view in enumerate(replicas)}
        for number in self._ring.from_key(key):
            place = place_of.get(number)
            if place is not None and loads[place] < most:
                return place
        raise AssertionError("all replicas are above their mean")


def make(context: RouterContext) -> Router:
    """Returns a router that hashes prefixes."""
    options = context.options
    return PrefixHash(
        HashRing(context.num_replicas, context.seed),
        context.prompts,
        options.router_prefix_blocks,
        options.router_load_bound,
    )
