"""What one router knows of one replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynosim.sim.cluster.replica import Replica
from dynosim.sim.engine.engine import Engine


class ReplicaLoad:
    """The requests that a router sent to a replica, and what it may ask the replica's engines.

    ``outstanding`` counts the unfinished requests, ``prompt_tokens`` and ``decode_blocks`` the
    tokens and KV blocks of their prompts. ``prefilling`` of them have no token yet, and
    ``prefill_tokens`` to compute: of what was cached, as known when they were sent, nothing is in
    that.
    """

    __slots__ = (
        "_clock",
        "_engines",
        "_replica",
        "decode_blocks",
        "number",
        "outstanding",
        "prefill_tokens",
        "prefilling",
        "prompt_tokens",
    )

    def __init__(
        self,
        number: int,
        replica: Replica,
        engines: Sequence[Engine],
        clock: Callable[[], float],
    ) -> None:
        self.number = number
        self.outstanding = 0
        self.prompt_tokens = 0
        self.prefilling = 0
        self.prefill_tokens = 0
        self.decode_blocks = 0
        self._replica = replica
        self._engines = engines
        self._clock = clock

    @property
    def waiting(self) -> int:
        """Requests at the replica that are not running yet, whoever sent them."""
        return self._replica.num_waiting

    @property
    def kv_use(self) -> float:
        """Share of the replica's KV blocks that requests hold now."""
        now_s = self._clock()
        used = sum([engine.used_blocks_at(now_s) for engine in self._engines])
        return used / sum([engine.kv.num_blocks for engine in self._engines])

    def add(self, prompt_tokens: int, new_tokens: int, blocks: int) -> None:
        """Counts a request that is sent, of whose prompt ``new_tokens`` are not cached."""
        self.outstanding += 1
        self.prompt_tokens += prompt_tokens
        self.prefilling += 1
        self.prefill_tokens += new_tokens
        self.decode_blocks += blocks

    def prefilled(self, new_tokens: int) -> None:
        """Notes that one of them has its first token."""
        self.prefilling -= 1
        self.prefill_tokens -= new_tokens

    def remove(self, prompt_tokens: int, blocks: int) -> None:
        """Takes off one that is finished."""
        self.outstanding -= 1
        self.prompt_tokens -= prompt_tokens
        self.decode_blocks -= blocks
