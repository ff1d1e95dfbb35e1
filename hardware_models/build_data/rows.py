"""Measured rows in memory: key columns and latencies, before they are packed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Group = tuple[str | int, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """Key columns (name -> shape (rows,), integers or text) and ``latency_s`` of shape (rows,)."""

    columns: dict[str, NDArray[Any]]
    latency_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.latency_s)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the key columns, in order."""
        return tuple(self.columns)

    def take(self, where: NDArray[Any]) -> Rows:
        """Returns the rows at a mask or at positions."""
        columns = {key: column[where] for key, column in self.columns.items()}
        return Rows(columns, self.latency_s[where])

    def without(self, key: str) -> Rows:
        """Returns the rows without one key column."""
        columns = {name: column for name, column in self.columns.items() if name != key}
        return Rows(columns, self.latency_s)

    def ids(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Returns one number per row, equal where all of ``keys`` are, in their sort order."""
        return joint_ids([self.columns[key] for key in keys])

    def groups(self, size: int) -> Iterator[tuple[Group, Rows]]:
        """Yields each distinct value of the first ``size`` keys, with its rows."""
        keys = self.keys[:size]
        ids = self.ids(keys)
        for number in range(int(ids.max()) + 1 if len(ids) else 0):
            rows = self.take(ids == number)
            yield tuple(rows.columns[key][0].item() for key in keys), rows

    def medians(self) -> Rows:
        """Returns the rows sorted by all keys, one per key: the median of its repeats."""
        ids = self.ids(self.keys)
        order = np.lexsort((self.latency_s, ids))
        ids, latency_s = ids[order], self.latency_s[order]
        first = np.flatnonzero(np.diff(ids, prepend=-1))
        count = np.diff(np.append(first, len(ids)))
        middle = (latency_s[first + (count - 1) // 2] + latency_s[first + count // 2]) / 2
        columns = {key: column[order[first]] for key, column in self.columns.items()}
        return Rows(columns, middle)


def joint_ids(columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Returns one number per position, dense from 0, in the columns' lexicographic order."""
    ids = np.zeros(len(columns[0]) if columns else 0, dtype=np.int64)
    for column in columns:
        values, position = np.unique(column, return_inverse=True)
        ids = np.unique(ids * len(values) + position, return_inverse=True)[1]
    return ids


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Returns the rows of all ``parts``, which have the same keys, one after another."""
    columns = {key: np.concatenate([part.columns[key] for part in parts]) for key in parts[0].keys}
    return Rows(columns, np.concatenate([part.latency_s for part in parts]))


def shared_positions(a: Rows, b: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns where in ``a`` and where in ``b`` the shapes measured in both stand.

    Both must have the same keys, each shape once.
    """
    columns = [np.concatenate([a.columns[key], b.columns[key]]) for key in a.keys]
    ids = joint_ids(columns)
    _, in_a, in_b = np.intersect1d(ids[: len(a)], ids[len(a) :], return_indices=True)
    return in_a, in_b
