"""Weighs what a replica has cached of a prompt against how busy it is, as Dynamo's KV router."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynosim.sim.cluster.prefix_index import PrefixIndex
from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.routers.base import ReplicaView, Router, RouterContext
from dynosim.sim.cluster.selection import softmin

OPTIONS = (
    "router_disk_weight",
    "router_event_lag_s",
    "router_host_weight",
    "router_overlap_weight",
    "router_prefill_load_scale",
    "router_temperature",
)


class KvAware:
    """The least of scale · max(prefill blocks - credit, 0) + decode blocks.

    The credit is for blocks that are cached, each at the weight of where it lies: on the GPU, in
    host memory, below that.

    Prefill blocks are those of the prompt and of prompts at the replica that have no token yet,
    less what was cached of these; decode blocks those of all prompts in flight there (Dynamo 1.4,
    "Routing concepts", whose weights of tiers are 0.75 and 0.25). Blocks are the engine's; a
    prompt's last one counts in part.
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
        self._scale = options.router_prefill_load_scale / prompts.block_size
        self._credit_tokens = options.router_overlap_weight * prompts.unit_tokens
        self._host_tokens = options.router_host_weight * prompts.unit_tokens
        self._disk_tokens = options.router_disk_weight * prompts.unit_tokens
        self._temperature = options.router_temperature
        self._rng = rng

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns a cheapest replica, or one drawn by how cheap it is."""
        cached = self._prefixes.overlaps(request)
        tokens = self._prompts.tokens(request)
        scale, credit = self._scale, self._credit_tokens
        below = self._prefixes.below(request, cached)
        costs = []
        for view in replicas:
            prefill = view.prefill_tokens + tokens - credit * cached[view.number]
            if below is not None:
                host, disk = below[view.number]
                prefill -= self._host_tokens * host + self._disk_tokens * disk
            decode = view.decode_blocks
            costs.append(scale * prefill + decode if prefill > 0.0 else float(decode))
        return softmin(costs, self._temperature, self._rng)


def make(context: RouterContext) -> Router:
    """Returns a KV-aware router."""
    return KvAware(context.prefixes, context.prompts, context.options, context.rng)
