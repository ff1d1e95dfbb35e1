"""What one router knows of one replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynosim.sim.cluster.worker import Worker
from dynosim.sim.engine.engine import Engine


class ReplicaLoad:
    """The requests that a router sent to a replica, and what it may ask the replica's engine.

    ``outstanding`` counts the unfinished requests, ``decode_blocks`` the KV blocks of their
    prompts, ``prefill_tokens`` the prompt tokens, cached ones as known when they were sent left
    out, of those without a first token.
    """

    __slots__ = (
        "_clock",
        "_engines",
        "_worker",
        "decode_blocks",
        "number",
        "outstanding",
        "prefill_tokens",
    )

    def __init__(
        self,
        number: int,
        worker: Worker,
        engines: Sequence[Engine],
        clock: Callable[[], float],
    ) -> None:
        self.number = number
        self.outstanding = 0
        self.prefill_tokens = 0
        self.decode_blocks = 0
        self._worker = worker
        self._engines = engines
        self._clock = clock

    @property
    def waiting(self) -> int:
        """Requests at the replica that are not running yet, whoever sent them."""
        return self._worker.waiting

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all unfinished requests at the replica."""
        return self._worker.prompt_tokens

    @property
    def kv_use(self) -> float:
        """Share of the replica's KV blocks that requests hold now."""
        now_s = self._clock()
        used = sum([engine.used_blocks_at(now_s) for engine in self._engines])
        return used / sum([engine.kv.num_blocks for engine in self._engines])
