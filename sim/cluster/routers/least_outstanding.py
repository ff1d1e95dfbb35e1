"""The replica with the fewest unfinished requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynosim.sim.cluster.routers.base import ReplicaView, Router
from dynosim.sim.random_streams import stream


class LeastOutstanding:
    """Joins the shortest queue; ties are drawn from a seeded stream."""

    is_blind = False

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns a replica with the fewest outstanding requests."""
        loads = [r.outstanding for r in replicas]
        least = min(loads)
        ties = [i for i, load in enumerate(loads) if load == least]
        return ties[0] if len(ties) == 1 else ties[int(self._rng.integers(len(ties)))]


def make(num_replicas: int, seed: int) -> Router:
    """Returns a join-the-shortest-queue router."""
    return LeastOutstanding(stream(seed, "routing"))
