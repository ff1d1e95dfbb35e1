"""How errors go together: between deployments of one stack, and between metrics of one deployment.

An error, counted in the widths of its class (a standard normal score), is the sum of a part that
all deployments of one model on one GPU under one backend share, and a part of each deployment's
own. Both are normal; the metrics of one deployment are correlated in either part.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dynosim.accuracy.intervals import FILE
from dynosim.hardware_models.arrays import FloatArray, IntArray

SHARED_FILE = FILE.with_name("shared_errors.csv")

Z_HIGH = 1.2815515655446004
"""Standard normal score at the end of an interval of 80 %."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedErrors:
    """Covariances of scores, shape (quantities, quantities): ``shared`` by a stack, and ``own``.

    Their diagonals add up to 1. ``groups``, of the same shape, counts the stacks that tell a pair.
    """

    quantities: tuple[str, ...]
    shared: FloatArray
    own: FloatArray
    groups: IntArray

    def share(self, quantity: str) -> float:
        """Returns the share of an error's variance that a stack has in common."""
        at = self.quantities.index(quantity)
        return float(self.shared[at, at])

    def scores(
        self, stacks: IntArray, quantities: Sequence[str], count: int, draw: np.random.Generator
    ) -> FloatArray:
        """Returns ``count`` draws of scores, shape (count, deployments, quantities).

        ``stacks``, shape (deployments,), numbers the stack of each from 0. KeyError for a quantity
        of which nothing is known.
        """
        unknown = set(quantities) - set(self.quantities)
        if unknown:
            raise KeyError(*sorted(unknown))
        at = [self.quantities.index(q) for q in quantities]
        common = _normal(self.shared[np.ix_(at, at)], (count, int(stacks.max()) + 1), draw)
        return np.asarray(
            common[:, stacks] + _normal(self.own[np.ix_(at, at)], (count, len(stacks)), draw)
        )


def _normal(
    covariance: FloatArray, shape: tuple[int, int], draw: np.random.Generator
) -> FloatArray:
    """Returns draws from N(0, covariance), which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(draw.standard_normal((*shape, len(covariance))) @ root.T)


@lru_cache(maxsize=4)
def read_shared_errors(path: Path = SHARED_FILE) -> SharedErrors:
    """Returns what a file says; of no quantity anything where there is no file."""
    rows: list[dict[str, str]] = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
    quantities = tuple(sorted({row["quantity"] for row in rows}))
    shared, own, groups = (np.zeros((len(quantities), len(quantities))) for _ in range(3))
    for row in rows:
        i, j = quantities.index(row["quantity"]), quantities.index(row["other"])
        shared[i, j] = shared[j, i] = float(row["shared"])
        own[i, j] = own[j, i] = float(row["own"])
        groups[i, j] = groups[j, i] = int(row["groups"])
    return SharedErrors(
        quantities=quantities, shared=shared, own=own, groups=groups.astype(np.int64)
    )
