"""The grid of a space: every candidate has coordinates and one flat index."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import IntArray


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

    def neighbours(self, index: int) -> Iterator[int]:
        """Yields the flat indices that differ from ``index`` in one axis."""
        at = list(self.coordinates(index))
        for axis, length in enumerate(self.lengths):
            for value in range(length):
                if value != at[axis]:
                    yield self.index([*at[:axis], value, *at[axis + 1 :]])

    def coordinates_of(self, indices: Sequence[int] | IntArray) -> IntArray:
        """Returns the coordinates of many flat indices, shape (indices, axes)."""
        flat = np.asarray(indices, dtype=np.int64)
        if not self.lengths:
            return np.zeros((len(flat), 0), dtype=np.int64)
        return np.stack(np.unravel_index(flat, self.lengths), axis=1).astype(np.int64)

    def coordinates(self, index: int) -> tuple[int, ...]:
        """Returns the coordinates of a flat index."""
        found = []
        for length in reversed(self.lengths):
            index, at = divmod(index, length)
            found.append(at)
        return tuple(reversed(found))
