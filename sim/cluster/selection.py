"""Seeded choices among costs."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np


def least(costs: Sequence[float], rng: np.random.Generator) -> int:
    """Returns the index of the least cost; equals are drawn among."""
    low = min(costs)
    first = costs.index(low)
    if costs.count(low) == 1:
        return first
    ties = [index for index, cost in enumerate(costs) if cost == low]
    return ties[int(rng.integers(len(ties)))]


def softmin(costs: Sequence[float], temperature: float, rng: np.random.Generator) -> int:
    """Returns an index drawn with probabilities exp(-cost / temperature), costs scaled to spread 1.

    At temperature 0 that is one of the least. The scale is Dynamo's: what matters is how a cost
    compares with the others, not its size.
    """
    if temperature == 0.0:
        return least(costs, rng)
    low, high = min(costs), max(costs)
    if low == high:
        return least(costs, rng)
    scale = -1.0 / ((high - low) * temperature)
    weights = [exp((cost - low) * scale) for cost in costs]
    drawn = float(rng.random()) * sum(weights)
    for index, weight in enumerate(weights):
        drawn -= weight
        if drawn < 0.0:
            return index
    return len(weights) - 1
