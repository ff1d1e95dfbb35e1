"""A link or a drive that carries one transfer after the other, in the order in which they came."""

from __future__ import annotations


class Channel:
    """One direction of a copy engine, or a drive.

    Copies are queued in order and each gets all of the bandwidth, as on a GPU's copy engine; n
    copies that come at once end after 1, 2, ... n times as long as one.
    """

    __slots__ = ("_bandwidth_bytes_s", "_free_s", "busy_s", "carried_bytes", "name")

    def __init__(self, name: str, bandwidth_bytes_s: float) -> None:
        self.name = name
        self.busy_s = 0.0
        self.carried_bytes = 0.0
        self._bandwidth_bytes_s = bandwidth_bytes_s
        self._free_s = 0.0

    def until_s(self, now_s: float, num_bytes: float) -> float:
        """Returns when a transfer that came now would end."""
        return max(now_s, self._free_s) + num_bytes / self._bandwidth_bytes_s

    def carry(self, now_s: float, num_bytes: float) -> float:
        """Queues a transfer; returns when it ends."""
        end_s = self.until_s(now_s, num_bytes)
        self.busy_s += num_bytes / self._bandwidth_bytes_s
        self.carried_bytes += num_bytes
        self._free_s = end_s
        return end_s
