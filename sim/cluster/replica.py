"""What a clock asks of a replica: one engine, or a group of data-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dynosim.sim.engine.sequence import Sequence


class Replica(Protocol):
    """Runs of steps one after the other; :class:`~dynosim.sim.engine.engine.Engine` is one.

    Requests are handed over to ``enqueue``.
    """

    is_interruptible: bool

    @property
    def num_waiting(self) -> int:
        """Requests that have arrived and not entered."""
        ...

    def run_until(
        self, now_s: float, horizon_s: float, on_finish: Callable[[Sequence, float], None], /
    ) -> float:
        """Ends the run that ends now, and those after it that end before ``horizon_s``."""
        ...

    def enqueue(self, seq: Sequence, time_s: float, /) -> float | None:
        """Takes a request that arrives; returns the end of the run in progress if that moves."""
        ...

    def expect_kv(self, on_reserved: Callable[[Sequence, float], None], /) -> None:
        """Makes the replica one of a decode pool, which takes blocks for prompts to come."""
        ...

    def expect(self, seq: Sequence, time_s: float, /) -> float | None:
        """Takes a request whose prompt another replica computes; returns as ``enqueue`` does."""
        ...

    def load(self, seq: Sequence, time_s: float, /, *, with_token: bool) -> float | None:
        """Takes note that the KV of an expected request has come; returns as ``enqueue`` does."""
        ...

    def free(self, seq: Sequence, /) -> None:
        """Frees the blocks of a request that keeps them."""
        ...

    @property
    def chunks(self) -> list[tuple[Sequence, int]]:
        """The prompts of the step in progress, and how many tokens each gets."""
        ...

    def cut(self, time_s: float, /) -> float:
        """Ends the run in progress with the step in progress at a time; returns when that is."""
        ...

    @property
    def run_steps(self) -> int:
        """Steps of the run in progress, 0 without one."""
        ...

    def end(self) -> list[Sequence]:
        """Completes the run, if one began; returns the requests that its last step finished."""
        ...

    def abort(self, seq: Sequence, /) -> bool:
        """Lets go, between two runs, of a request that nobody wants; returns whether it was here.

        The tokens that it has had count no longer.
        """
        ...

    def void(self, seq: Sequence, /) -> None:
        """Makes the tokens of a request that has finished count no longer."""
        ...
