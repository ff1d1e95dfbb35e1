"""The replica at which the request is predicted to get its first, or last, token soonest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dynosim.sim.cluster.prefix_index import PrefixIndex
from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.cluster.routers.base import ReplicaView, Router, RouterContext
from dynosim.sim.cluster.selection import least

OPTIONS = ("router_event_lag_s", "router_predicts")

Predict = Callable[[ReplicaView, int, int], float]
"""Seconds of a request at a replica, of whose prompt so many tokens are new and so many cached."""


class CostAware:
    """Predicts with the engine's own step times, what is queued and what is cached."""

    is_blind = False

    def __init__(
        self, predict: Predict, prefixes: PrefixIndex, prompts: Prompts, rng: np.random.Generator
    ) -> None:
        self._predict = predict
        self._prefixes = prefixes
        self._prompts = prompts
        self._rng = rng

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns a replica with the least predicted time."""
        found = self._prefixes.overlaps(request)
        tokens, per_unit = self._prompts.tokens(request), self._prompts.unit_tokens
        costs = []
        for view in replicas:
            # The last token is always computed.
            cached = min(found[view.number] * per_unit, tokens - 1)
            costs.append(self._predict(view, tokens - cached, cached))
        return least(costs, self._rng)


def make(context: RouterContext) -> Router:
    """Returns a router that predicts times."""
    times = context.times
    predict = times.ttft_s if context.options.router_predicts == "ttft" else times.e2el_s
    return CostAware(predict, context.prefixes, context.prompts, context.rng)
