"""What a router may see of a replica."""

from __future__ import annotations

from typing import Protocol


class ReplicaView(Protocol):
    """A replica from a router's side.

    :class:`~dynosim.sim.cluster.replica_load.ReplicaLoad` says more of each.
    """

    @property
    def number(self) -> int:
        """Which replica it is, from 0; a router may be shown some of them only."""
        ...

    @property
    def outstanding(self) -> int:
        """Requests that this router sent to the replica and that are not finished."""
        ...

    @property
    def prefilling(self) -> int:
        """Those of them that have no token yet."""
        ...

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens to compute of those without a token."""
        ...

    @property
    def decode_blocks(self) -> int:
        """KV blocks of the prompts of all of them."""
        ...

    @property
    def waiting(self) -> int:
        """Requests at the replica that are not running yet, whoever sent them."""
        ...

    @property
    def kv_use(self) -> float:
        """Share of the replica's KV blocks that requests hold now."""
        ...
