"""The less busy of two replicas drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynosim.sim.cluster.routers.base import ReplicaView, Router, RouterContext


class PowerOfTwo:
    """Looks at two replicas only, and still does nearly as well as who looks at all.

    Mitzenmacher, "The power of two choices in randomized load balancing" (2001).
    """

    is_blind = False

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns the one with fewer outstanding requests, of equals the one drawn first."""
        size = len(replicas)
        if size == 1:
            return 0
        # One draw for an ordered pair of different replicas.
        one, other = divmod(int(self._rng.integers(size * (size - 1))), size - 1)
        other += other >= one
        return one if replicas[one].outstanding <= replicas[other].outstanding else other


def make(context: RouterContext) -> Router:
    """Returns a power-of-two-choices router."""
    return PowerOfTwo(context.rng)
