"""Adds up scores for a short queue, free KV blocks and a cached prefix, as llm-d's scheduler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynosim.sim.cluster.prefix_index import PrefixIndex
from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.routers.base import ReplicaView, Router, RouterContext
from dynosim.sim.cluster.selection import least

OPTIONS = (
    "router_event_lag_s",
    "router_queue_weight",
    "router_kv_weight",
    "router_prefix_weight",
)


class WeightedScore:
    """The highest weighted sum of three scores between 0 and 1.

    The queue score is 1 for the shortest queue of waiting requests and 0 for the longest, the KV
    score the free share of KV blocks, the prefix score the cached share of the prompt's blocks
    (the scorers of the Gateway API inference extension, which llm-d builds on, 2025).
    """

    is_blind = False

    def __init__(
        self,
        prefixes: PrefixIndex,
        prompts: Prompts,
        options: RouterOptions,
        rng: np.random.Generator,
    ) -> None:
        self._prefixes = prefixes
        self._prompts = prompts
        self._queue_weight = options.router_queue_weight
        self._kv_weight = options.router_kv_weight
        self._prefix_weight = options.router_prefix_weight
        self._rng = rng

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns a replica with the highest score."""
        queues = [view.waiting for view in replicas]
        longest = max(queues)
        spread = longest - min(queues)
        cached = self._prefixes.overlaps(request)
        per_unit = self._prompts.unit_tokens / self._prompts.tokens(request)
        scores = []
        for view, queue in zip(replicas, queues, strict=True):
            short = (longest - queue) / spread if spread else 1.0
            scores.append(
                self._queue_weight * short
                + self._kv_weight * (1.0 - view.kv_use)
                + self._prefix_weight * per_unit * cached[view.number]
            )
        return least([-score for score in scores], self._rng)


def make(context: RouterContext) -> Router:
    """Returns a router that adds up scores."""
    return WeightedScore(context.prefixes, context.prompts, context.options, context.rng)
