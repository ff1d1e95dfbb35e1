"""What a clock asks of a replica: one engine, or a group of data-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dynosim.sim.engine.schedulers.base import WaitingQueue
from dynosim.sim.engine.sequence import Sequence


class Replica(Protocol):
    """Runs of steps one after the other; :class:`~dynosim.sim.engine.engine.Engine` is one.

    Requests are handed over by appending them to ``waiting``.
    """

    is_interruptible: bool

    @property
    def waiting(self) -> WaitingQueue:
        """The requests that have not entered."""
        ...

    def run_until(
        self, now_s: float, horizon_s: float, on_finish: Callable[[Sequence, float], None], /
    ) -> float:
        """Ends the run that ends now, and those after it that end before ``horizon_s``."""
        ...

    def boundary_after(self, time_s: float, /) -> float:
        """Cuts the run at the first step boundary at or after ``time_s``; returns that."""
        ...

    def expect_kv(self, on_reserved: Callable[[Sequence, float], None], /) -> None:
        """Makes the replica one of a decode pool, which takes blocks for prompts to come."""
        ...

    def expect(self, seq: Sequence, /) -> None:
        """Queues a request whose prompt another replica computes."""
        ...

    def load(self, seq: Sequence, now_s: float, /, *, with_token: bool) -> bool:
        """Notes that the KV of an expected request has come; returns whether that was all."""
        ...

    def keep_blocks(self) -> None:
        """Makes the replica one of a prefill pool, which keeps blocks until they are freed."""
        ...

    def free(self, seq: Sequence, /) -> None:
        """Frees the blocks that were kept of a finished request."""
        ...

    @property
    def chunks(self) -> list[tuple[Sequence, int]]:
        """The prompts of the step in progress, and how many tokens each gets."""
        ...
