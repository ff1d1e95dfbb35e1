"""A stretch of cached prefix: units that one request computed one after the other."""

from __future__ import annotations


class Stretch:
    """Copies of the units ``units[start : start + size]`` of one path, and who holds how many.

    Whoever holds a unit holds all before it, so the requests that hold some of a stretch hold its
    first units, up to the ``reach`` of the one that holds most. The units behind ``reach`` are
    free: each is in one of ``places`` of the eviction queue, the deepest in the first.
    ``is_spare`` tells of a copy that is not found, because there is an older one.
    """

    __slots__ = ("_holders", "is_spare", "places", "reach", "size", "start", "units")

    def __init__(self, units: list[int], start: int, size: int, *, is_spare: bool = False) -> None:
        self.units = units
        self.start = start
        self.size = size
        self.is_spare = is_spare
        self.reach = size
        self.places: list[Place] = []
        self._holders = {size: 1}

    @property
    def first(self) -> int:
        """The unit at the start, which names the stretch."""
        return self.units[self.start]

    def unit(self, position: int) -> int:
        """Returns the unit at a position of the stretch, from 0."""
        return self.units[self.start + position]

    def shared(self, path: list[int], at: int, stop: int) -> int:
        """Returns how many leading units are ``path[at:stop]``; the first one is.

        A unit stands for all before it, so the last one in common can be found by bisection.
        """
        most = min(self.size, stop - at)
        mine, here = self.units, self.start
        if mine[here + most - 1] == path[at + most - 1]:
            return most
        if mine[here + 1] != path[at + 1]:
            # A system prompt that many begin with, as often as not.
            return 1
        low, high = 2, most - 1
        while low < high:
            middle = (low + high + 1) // 2
            if mine[here + middle - 1] == path[at + middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low

    def grow(self, num_units: int) -> None:
        """Adds units that the one who holds all of it has computed."""
        self._remove(self.size)
        self.size += num_units
        self._holders[self.size] = 1
        self.reach = self.size

    def hold(self, num_units: int) -> int:
        """Lets one more request hold the first units; returns how many of them were free."""
        taken_back = num_units - self.reach
        holders = self._holders
        holders[num_units] = holders.get(num_units, 0) + 1
        if taken_back <= 0:
            return 0
        self.reach = num_units
        places = self.places
        while places and places[-1].low < num_units:
            place = places[-1]
            place.low = min(place.high, num_units)
            if place.low == place.high:
                places.pop()
        return taken_back

    def leave(self, num_units: int) -> int:
        """Lets go of the first units for one request; returns how many are held by others."""
        self._remove(num_units)
        return self.reach

    def _remove(self, num_units: int) -> None:
        holders = self._holders
        others = holders.pop(num_units) - 1
        if others:
            holders[num_units] = others
        elif num_units == self.reach:
            self.reach = max(holders) if holders else 0


class Place:
    """Units ``low`` to ``high`` of a stretch in the eviction queue; the last one goes first."""

    __slots__ = ("high", "low", "stretch")

    def __init__(self, stretch: Stretch, low: int, high: int) -> None:
        self.stretch = stretch
        self.low = low
        self.high = high


Chain = list[tuple[Stretch, int]]
"""A prefix as its cached copies: stretches in order, and how many units of each belong to it."""


def num_units(chain: Chain) -> int:
    """Returns the length of a prefix."""
    units = 0
    for _, length in chain:
        units += length
    return units
