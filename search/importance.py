"""Which fields decide an objective: Shapley effects, exact over the candidates of a space.

The variance of an objective over all candidates that can run is shared out among the fields: a
field's share is its mean contribution to the variance that a set of fields explains, over all
orders in which fields may join the set (Owen, "Sobol' indices and Shapley value", SIAM/ASA Journal
on Uncertainty Quantification 2, 2014). Shares sum to 1 and hold where fields depend on each other,
as they do where combinations cannot run (Song, Nelson and Staum, ibid. 4, 2016).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.search.landscape import Landscape

MOST_FIELDS = 12
"""Fields up to which all of their subsets are looked at: 4,096."""


@dataclass(frozen=True)
class Importance:
    """``shares`` of the variance of one objective's logarithm by field, largest first."""

    metric: str
    shares: Mapping[str, float]


def importances(landscape: Landscape) -> list[Importance]:
    """Returns how much each searched field decides, an item an objective.

    Empty for more than MOST_FIELDS fields; an objective that is the same everywhere is left out.
    """
    lengths = landscape.space.grid.lengths
    varied = [axis for axis, length in enumerate(lengths) if length > 1]
    if not 0 < len(varied) <= MOST_FIELDS:
        return []
    at = landscape.coordinates[:, varied]
    names = [landscape.space.grid.names[axis] for axis in varied]
    found = []
    for column, objective in enumerate(landscape.space.objectives):
        values = landscape.log_losses[:, column]
        if values.var() > 1e-18:
            shares = dict(zip(names, shapley_effects(at, values).tolist(), strict=True))
            ranked = sorted(shares.items(), key=lambda item: -item[1])
            found.append(Importance(objective.metric, dict(ranked)))
    return found


def shapley_effects(at: IntArray, values: FloatArray) -> FloatArray:
    """Returns the share of the variance of ``values``, shape (n,), by column of ``at``, (n, k)."""
    k = at.shape[1]
    explained = {
        subset: _explained(at[:, list(subset)], values)
        for size in range(k + 1)
        for subset in combinations(range(k), size)
    }
    effects = np.zeros(k)
    for subset, without in explained.items():
        weight = (
            factorial(len(subset)) * factorial(k - len(subset) - 1) / factorial(k)
            if (len(subset) < k)
            else 0.0
        )
        for axis in set(range(k)) - set(subset):
            joined = tuple(sorted((*subset, axis)))
            effects[axis] += weight * (explained[joined] - without)
    return effects / explained[tuple(range(k))]


def _explained(at: IntArray, values: FloatArray) -> float:
    """Returns the variance of the means of ``values`` over equal rows of ``at``."""
    if at.shape[1] == 0:
        return 0.0
    code = np.ravel_multi_index(tuple(at.T), tuple(at.max(axis=0) + 1))
    if code.max() > 4 * len(code):
        code = np.unique(code, return_inverse=True)[1]
    counts = np.bincount(code)
    sums = np.bincount(code, weights=values)
    has_any = counts > 0
    means = sums[has_any] / counts[has_any]
    share = counts[has_any] / len(values)
    return float(share @ (means - values.mean()) ** 2)
