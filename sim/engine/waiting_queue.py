"""The waiting queue of the priority policy; first come, first served needs only a deque."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from dynosim.sim.engine.inbox import Inbox
from dynosim.sim.engine.sequence import Sequence


class PriorityQueue:
    """Waiting sequences, lowest ``priority`` first, then in order of arrival.

    Stands in for a deque: a preempted sequence that is put back goes where its priority says.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Sequence]] = []

    def append(self, seq: Sequence) -> None:
        """Adds a sequence where its priority says."""
        heappush(self._heap, (seq.priority, seq.index, seq))

    def appendleft(self, seq: Sequence) -> None:
        """Puts a sequence back where its priority says."""
        self.append(seq)

    def popleft(self) -> Sequence:
        """Removes and returns the first sequence."""
        return heappop(self._heap)[2]

    def __getitem__(self, position: int) -> Sequence:
        """Returns the first sequence; the others are in no order, so only position 0 may be asked.

        Raises IndexError where the queue is empty.
        """
        assert position == 0, "only the head of a priority queue is known"
        return self._heap[0][2]

    def __len__(self) -> int:
        return len(self._heap)

    def remove(self, seq: Sequence) -> None:
        """Removes a sequence wherever it is; raises ValueError where it is not."""
        self._heap.remove((seq.priority, seq.index, seq))
        heapify(self._heap)


def drop(waiting: deque[Sequence] | PriorityQueue | Inbox, seq: Sequence) -> bool:
    """Removes a sequence from a queue; returns whether it was there."""
    try:
        waiting.remove(seq)
    except ValueError:
        return False
    return True
