"""A replica drawn uniformly, whatever its load."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynosim.sim.cluster.routers.base import ReplicaView, Router, RouterContext


class RandomChoice:
    """Draws each request's replica from a seeded stream."""

    is_blind = True

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns a uniformly drawn replica."""
        return int(self._rng.integers(len(replicas)))


def make(context: RouterContext) -> Router:
    """Returns a uniformly random router."""
    return RandomChoice(context.rng)
