"""Ragged rows of prefix block ids, and the law that one id stands for one prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dynosim.hardware_models.arrays import IntArray

# Where ids are at most this many times as wide as there are ids, a table indexed by id is
# cheaper than sorting them.
DENSE = 8
NO_PARENT = np.iinfo(np.int64).min


def offsets_of(counts: IntArray) -> IntArray:
    """Returns the n + 1 offsets of n ragged rows with ``counts`` elements each."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def depths(offsets: IntArray) -> IntArray:
    """Returns the position of every element within its own row."""
    return np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], np.diff(offsets))


def cut_rows(ids: IntArray, offsets: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Returns ids and offsets of the same rows with at most ``counts`` leading elements each."""
    kept = np.minimum(np.diff(offsets), counts)
    if np.array_equal(kept, np.diff(offsets)):
        return ids, offsets
    return ids[depths(offsets) < np.repeat(kept, np.diff(offsets))], offsets_of(kept)


def take_rows(ids: IntArray, offsets: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Returns ids and offsets of the rows numbered ``rows``, in that order."""
    counts = np.diff(offsets)[rows]
    taken = offsets_of(counts)
    return ids[np.repeat(offsets[rows], counts) + depths(taken)], taken


def is_chained(ids: IntArray, offsets: IntArray) -> bool:
    """Returns whether every id always follows the same id, so that it names one prefix."""
    if not len(ids):
        return True
    low, high = int(ids.min()), int(ids.max())
    wide = high - low >= DENSE * len(ids)
    dense = np.unique(ids, return_inverse=True)[1] if wide else ids - low
    parent = _parents(ids, offsets)
    seen = np.empty(int(dense.max()) + 1, dtype=np.int64)
    seen[dense] = parent
    return bool((seen[dense] == parent).all())


def _parents(ids: IntArray, offsets: IntArray) -> IntArray:
    parent = np.empty_like(ids)
    parent[1:] = ids[:-1]
    starts = offsets[:-1]
    parent[starts[np.diff(offsets) > 0]] = NO_PARENT
    return parent


def rechain(ids: IntArray, offsets: IntArray) -> IntArray:
    """Returns new ids, one for each distinct (prefix before it, id): 0, 1, 2, … by depth.

    Two rows agree in the new ids exactly as far as they agreed from the start in the old ones.
    """
    new = np.empty_like(ids)
    counts = np.diff(offsets)
    rows = np.arange(len(counts))
    parent = np.full(len(counts), -1, dtype=np.int64)
    used = depth = 0
    while len(rows := rows[counts[rows] > depth]):
        at = offsets[rows] + depth
        pairs = np.stack((parent[rows], ids[at]))
        fresh, which = np.unique(pairs, axis=1, return_inverse=True)
        new[at] = parent[rows] = used + which.reshape(-1)
        used += fresh.shape[1]
        depth += 1
    return new
