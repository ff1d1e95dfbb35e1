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
    and ``on_reserved`` is called. It is ``reserved`` until its KV has come, and one of the
    scheduler's ``loaded`` from then on.
    """

    __slots__ = ("_on_reserved", "_scheduler", "expected", "reserved")

    def __init__(
        self, scheduler: StagingScheduler, on_reserved: Callable[[Sequence, float], None]
    ) -> None:
        self._scheduler = scheduler
        self._on_reserved = on_reserved
        self.expected: deque[Sequence] = deque()
        self.reserved: set[Sequence] = set()

    def reserve(self, now_s: float) -> None:
        """Gives blocks to those expected, in order, as long as there is room."""
        expected = self.expected
        while expected:
            staged = len(self.reserved) + len(self._scheduler.loaded)
            if not self._scheduler.reserve(expected[0], staged):
                return
            seq = expected.popleft()
            self.reserved.add(seq)
            self._on_reserved(seq, now_s)

    def abort(self, seq: Sequence) -> bool:
        """Lets go of a request that has not entered; returns whether it was here."""
        if seq in self.expected:
            self.expected.remove(seq)
            return True
        if seq in self.reserved:
            self.reserved.remove(seq)
        elif seq in self._scheduler.loaded:
            self._scheduler.loaded.remove(seq)
        else:
            return False
        self._scheduler.free(seq)
        return True
