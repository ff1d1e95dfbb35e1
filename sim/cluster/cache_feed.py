"""The events of engines' prefix caches, on their way into the routers' index."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[list[int], int, int], None]
"""Tells that ``units[start:stop]`` entered or left a cache."""


class CacheFeed:
    """Writes the events of one cache into the index as they happen."""

    __slots__ = ("_bit", "_holders")

    def __init__(self, holders: dict[int, int], bit: int) -> None:
        self._holders = holders
        self._bit = bit

    def stored(self, units: list[int], start: int, stop: int) -> None:
        """Notes that ``units[start:stop]`` can be found."""
        holders, bit = self._holders, self._bit
        for unit in units[start:stop]:
            holders[unit] = holders.get(unit, 0) | bit

    def evicted(self, units: list[int], start: int, stop: int) -> None:
        """Notes that ``units[start:stop]`` can be found no longer."""
        holders, bit = self._holders, self._bit
        for unit in units[start:stop]:
            others = holders[unit] ^ bit
            if others:
                holders[unit] = others
            else:
                del holders[unit]


class LateFeed:
    """Sends the events of one cache on their way to the index."""

    __slots__ = ("_feed", "_post")

    def __init__(self, feed: CacheFeed, post: Callable[[Tell, list[int], int, int], None]) -> None:
        self._feed = feed
        self._post = post

    def stored(self, units: list[int], start: int, stop: int) -> None:
        """Tells, later, that ``units[start:stop]`` can be found."""
        self._post(self._feed.stored, units, start, stop)

    def evicted(self, units: list[int], start: int, stop: int) -> None:
        """Tells, later, that ``units[start:stop]`` can be found no longer."""
        self._post(self._feed.evicted, units, start, stop)
