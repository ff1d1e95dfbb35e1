"""The replica with the fewest unfinished requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynosim.sim.cluster.routers.base import ReplicaView, Router, RouterContext
from dynosim.sim.cluster.selection import least


class LeastOutstanding:
    """Joins the shortest queue; ties are drawn from a seeded stream."""

    is_blind = False

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns a replica with the fewest outstanding requests."""
        return least([r.outstanding for r in replicas], self._rng)


def make(context: RouterContext) -> Router:
    """Returns a join-the-shortest-queue router."""
    return LeastOutstanding(context.rng)
