"""All turns of a conversation go to one replica."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.sim.cluster.hash_ring import HashRing, hash_key, mixed
from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.cluster.routers.base import ReplicaView, Router, RouterContext


class SessionAffinity:
    """Hashes the session, as a cookie or header would; loads are not looked at.

    Where the workload names no sessions, the first prefix block stands for one; a request without
    any is a session of its own.
    """

    is_blind = True

    def __init__(self, ring: HashRing, prompts: Prompts) -> None:
        self._ring = ring
        self._prompts = prompts

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns the session's replica, or the next on the ring that is shown."""
        return self._ring.first_of(self._key(request), replicas)

    def _key(self, request: int) -> int:
        session = self._prompts.session(request)
        if session is not None:
            return mixed(session)
        units = self._prompts.leading_blocks(request, 1)
        return hash_key(units) if units else mixed(~request)


def make(context: RouterContext) -> Router:
    """Returns a router that keeps sessions together."""
    return SessionAffinity(HashRing(context.num_replicas, context.seed), context.prompts)
