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

    def void(self, seq: Sequence, /) -> bool:
        """Makes the tokens of a request that has finished count no longer."""
        ...

    def boundary_after(self, time_s: float, /) -> float:
        """Cuts the run at the first step boundary at or after ``time_s``; returns that."""
        ...
