"""What each client has in flight, and which of its requests wait for that."""

from __future__ import annotations

from collections import deque

from dynosim.hardware_models.arrays import IntArray


class ClientSlots:
    """Lets every client have so many requests in flight; ``clients`` are the requests' own."""

    def __init__(self, clients: IntArray, limit: int) -> None:
        self._client: list[int] = clients.tolist()
        self._limit = limit
        self._in_flight: dict[int, int] = {}
        self._waiting: dict[int, deque[int]] = {}

    def take(self, request: int) -> bool:
        """Takes a slot of the request's client; returns False where the request has to wait."""
        client = self._client[request]
        taken = self._in_flight.get(client, 0)
        if taken == self._limit:
            self._waiting.setdefault(client, deque()).append(request)
            return False
        self._in_flight[client] = taken + 1
        return True

    def free(self, request: int) -> list[int]:
        """Gives a request's slot back; returns the request that has it now, if any waited."""
        client = self._client[request]
        waiting = self._waiting.get(client)
        if waiting:
            return [waiting.popleft()]
        self._in_flight[client] -= 1
        return []
