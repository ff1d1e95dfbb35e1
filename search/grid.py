"""The grid of a space: every candidate has coordinates and one flat index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """Axes of a space; the last axis varies fastest in the flat index.

    ``is_ordered`` says of each axis whether neighbouring coordinates are near in effect.
    """

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    is_ordered: tuple[bool, ...]

    @property
    def size(self) -> int:
        """Number of candidates."""
        return math.prod(self.lengths)

    def index(self, coordinates: Sequence[int]) -> int:
        """Returns the flat index of coordinates."""
        index = 0
        for at, length in zip(coordinates, self.lengths, strict=True):
            index = index * length + at
        return index

    def coordinates(self, index: int) -> tuple[int, ...]:
        """Returns the coordinates of a flat index."""
        found = []
        for length in reversed(self.lengths):
            index, at = divmod(index, length)
            found.append(at)
        return tuple(reversed(found))
