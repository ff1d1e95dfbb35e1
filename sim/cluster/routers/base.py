"""The router interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from dynosim.sim.cluster.prefix_index import PrefixIndex
from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.cluster.replica_view import ReplicaView
from dynosim.sim.cluster.router_inputs import RouterInputs
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.time_prediction import TimePrediction
from dynosim.sim.random_streams import stream

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
    """What the router of a ``number``, from 0, is made from.

    ``inputs`` are provided by the run for routers that ask.
    """

    num_replicas: int
    seed: int
    number: int
    options: RouterOptions
    inputs: RouterInputs

    @cached_property
    def rng(self) -> np.random.Generator:
        """Draws of this router's own; those who draw nothing spare the import behind it."""
        return stream(self.seed, f"routing {self.number}" if self.number else "routing")

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
