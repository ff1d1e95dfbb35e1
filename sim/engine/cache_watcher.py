"""Who is told what enters a prefix cache and what leaves it."""

from __future__ import annotations

from typing import Protocol


class CacheWatcher(Protocol):
    """Follows one replica's cache, as a router does that is fed an engine's KV events.

    A unit is stored when it can first be found and evicted when it no longer can; further copies
    are not told of.
    """

    def stored(self, units: list[int], start: int, stop: int, /) -> None:
        """Notes that ``units[start:stop]`` can be found from now on."""
        ...

    def evicted(self, units: list[int], start: int, stop: int, /) -> None:
        """Notes that ``units[start:stop]`` can be found no longer."""
        ...
