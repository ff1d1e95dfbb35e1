"""Whether "A is better than B with probability p" comes true as often as it says.

Error classes and shared errors of one half of the groups judge measured pairs of the other half:
two deployments under one load, of one stack or of two.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from dynosim.accuracy.error_classes import fields_of
from dynosim.accuracy.errors import Residual
from dynosim.accuracy.halves import fold_of
from dynosim.accuracy.intervals import ErrorModel
from dynosim.accuracy.learn_intervals import learn
from dynosim.accuracy.learn_shared_errors import learn_shared_errors
from dynosim.accuracy.shared_errors import Z_HIGH, SharedErrors

EDGES = (0.5, 0.6, 0.75, 0.9, 0.97, 1.0)
"""Where bands of stated probabilities begin and end."""


@dataclass(frozen=True, kw_only=True)
class OrderBand:
    """Measured pairs whose order was stated with nearly one probability.

    ``stated`` is that in the mean, ``found`` the share of pairs that were in this order.
    """

    quantity: str
    is_one_stack: bool
    low: float
    pairs: int
    stated: float
    found: float


def check_order(residuals: Sequence[Residual]) -> list[OrderBand]:
    """Returns the bands of every quantity that have any pairs."""
    bands: dict[tuple[str, bool, float], list[tuple[float, bool]]] = defaultdict(list)
    for half in (0, 1):
        seen = [r for r in residuals if fold_of(f"order {r.group}", 2) != half]
        unseen = [r for r in residuals if fold_of(f"order {r.group}", 2) == half]
        if not (seen and unseen):
            continue
        model, shared = learn(seen), learn_shared_errors(seen)
        for one, other in _pairs(unseen):
            if one.quantity in shared.quantities:
                stated = chance_below(one, other, model, shared)
                is_first = stated >= 0.5
                came_true = (one.measured < other.measured) == is_first
                sure = stated if is_first else 1.0 - stated
                low = max(edge for edge in EDGES[:-1] if edge <= sure)
                key = (one.quantity, one.group == other.group, low)
                bands[key].append((sure, came_true))
    return [
        OrderBand(
            quantity=quantity,
            is_one_stack=is_one_stack,
            low=low,
            pairs=len(found),
            stated=float(np.mean([p for p, _ in found])),
            found=float(np.mean([is_true for _, is_true in found])),
        )
        for (quantity, is_one_stack, low), found in sorted(bands.items())
    ]


def _pairs(residuals: Sequence[Residual]) -> Iterator[tuple[Residual, Residual]]:
    """Yields pairs of runs of one set and load by the same metric."""
    alike: dict[tuple[str, str, str], list[Residual]] = defaultdict(list)
    for residual in residuals:
        if residual.load:
            alike[residual.set, residual.metric, residual.load].append(residual)
    for runs in alike.values():
        yield from combinations(runs, 2)


def chance_below(one: Residual, other: Residual, model: ErrorModel, shared: SharedErrors) -> float:
    """Returns the probability that ``one`` is measured below ``other``, as predicted.

    KeyError for a quantity without classes. Both ends of an interval count alike here.
    """
    middles, spreads = [], []
    for residual in (one, other):
        like, low, high = model.log_bounds(residual.quantity, fields_of(residual))
        middles.append(math.log(residual.predicted) + like.median)
        spreads.append((high - low) / 2.0 / Z_HIGH)
    share = shared.share(one.quantity) if one.group == other.group else 0.0
    variance = spreads[0] ** 2 + spreads[1] ** 2 - 2.0 * share * spreads[0] * spreads[1]
    return NormalDist().cdf((middles[1] - middles[0]) / math.sqrt(variance))
