"""The requests that wait at a router, and who of them is next."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.cluster.router_options import QueuePolicy


class RouterQueue:
    """Classes of ``priority`` go one after the other, lower first; within one the policy decides.

    ``fcfs`` and ``lcfs`` go by arrival; ``wspt`` takes the shortest prompt, which is the weighted
    shortest processing time where all of a class weigh the same (Smith 1956).
    """

    def __init__(self, policy: QueuePolicy, prompts: Prompts) -> None:
        self._key = _key_of(policy, prompts)
        self._prompts = prompts
        self._heap: list[tuple[int, int, int, int]] = []
        self._waiting: set[int] = set()
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, request: int) -> None:
        """Adds a request that has just arrived."""
        self._arrivals += 1
        key = self._key(request, self._arrivals)
        priority = self._prompts.priority(request)
        heappush(self._heap, (priority, key, self._arrivals, request))
        self._waiting.add(request)

    def holds(self, request: int) -> bool:
        """Returns whether a request is waiting."""
        return request in self._waiting

    def first(self) -> int:
        """Returns who is next; the queue must not be empty."""
        heap = self._heap
        while heap[0][3] not in self._waiting:
            heappop(heap)
        return heap[0][3]

    def remove(self, request: int) -> bool:
        """Takes a request out; returns whether it was waiting."""
        if request not in self._waiting:
            return False
        self._waiting.remove(request)
        return True


def _key_of(policy: QueuePolicy, prompts: Prompts) -> Callable[[int, int], int]:
    if policy == "wspt":
        return lambda request, arrival: prompts.tokens(request)
    sign = -1 if policy == "lcfs" else 1
    return lambda request, arrival: sign * arrival
