"""Requests whose prompts another engine computes: blocks first, then their KV, then a place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from dynosim.sim.engine.schedulers.base import StagingScheduler
from dynosim.sim.engine.sequence import Sequence


class Staging:
    """What an engine holds beside its batch for KV that is to come.

    A request is ``expected``; at a step boundary it gets the blocks of its prompt, in order, as
    the scheduler's :meth:`~dynosim.sim.engine.schedulers.base.StagingScheduler.reserve` sees fit,
    and ``on_reserved`` is called. Once its KV has come, it is one of the scheduler's ``loaded``.
    """

    __slots__ = ("_on_reserved", "_scheduler", "expected", "num_reserved")

    def __init__(
        self, scheduler: StagingScheduler, on_reserved: Callable[[Sequence, float], None]
    ) -> None:
        self._scheduler = scheduler
        self._on_reserved = on_reserved
        self.expected: deque[Sequence] = deque()
        self.num_reserved = 0

    def reserve(self, now_s: float) -> None:
        """Gives blocks to those expected, in order, as long as there is room."""
        expected = self.expected
        while expected:
            staged = self.num_reserved + len(self._scheduler.loaded)
            if not self._scheduler.reserve(expected[0], staged):
                return
            seq = expected.popleft()
            self.num_reserved += 1
            self._on_reserved(seq, now_s)
