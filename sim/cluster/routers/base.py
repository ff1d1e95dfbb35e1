"""The router interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dynosim.sim.cluster.prefix_index import PrefixIndex
from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.cluster.replica_view import ReplicaView
from dynosim.sim.cluster.router_inputs import RouterInputs
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.time_prediction import TimePrediction

__all__ = ["ReplicaView", "Router", "RouterContext"]


class Router(Protocol):
    """Returns, per request, the place of the replica that serves it among those it is shown.

    ``is_blind`` tells that the choice depends on nothing but the requests and their order; such a
    router is asked ahead of the clock.
    """

    is_blind: bool

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns an index into ``replicas``, of which there is one, for request ``request``."""
        ...


@dataclass(frozen=True, kw_only=True)
class RouterContext:
    """What a router is made from; ``inputs`` are provided by the run for routers that ask."""

    num_replicas: int
    seed: int
    rng: np.random.Generator
    options: RouterOptions
    inputs: RouterInputs

    @property
    def prompts(self) -> Prompts:
        """The requests' prompts."""
        return self.inputs.prompts

    @property
    def prefixes(self) -> PrefixIndex:
        """What the replicas have cached, as their events tell."""
        return self.inputs.prefixes()

    @property
    def times(self) -> TimePrediction:
        """How long a request would take at a replica."""
        return self.inputs.times()
