"""Which replicas take a request now, and which requests are not worth sending."""

from __future__ import annotations

from dynosim.sim.cluster.replica_view import ReplicaView
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.refusal import Refusal


class Admission:
    """The thresholds of :class:`~dynosim.sim.cluster.router_options.RouterOptions`."""

    def __init__(self, options: RouterOptions) -> None:
        self._max_outstanding = options.router_max_outstanding
        self._max_waiting = options.router_max_waiting
        self._max_kv_use = options.router_max_kv_use

    def closed_by(self, replica: ReplicaView) -> Refusal:
        """Returns what a request to this replica would be refused for now, ``NONE`` if nothing."""
        limit = self._max_outstanding
        if limit is not None and replica.outstanding >= limit:
            return Refusal.QUEUE_DEPTH
        limit = self._max_waiting
        if limit is not None and replica.waiting >= limit:
            return Refusal.QUEUE_DEPTH
        share = self._max_kv_use
        if share is not None and replica.kv_use >= share:
            return Refusal.KV_USE
        return Refusal.NONE
