"""Spaces too large to be looked at as a whole: a sample, and all that is close to its best.

The sample is spread evenly over the flat indices. Then whatever differs in one field from a point
of the front that the estimates give is looked at too, until the front does not move; then in two
fields, from as many of its points as are affordable, and again. So no candidate that differs in
one field from a point of the estimated front is better by its estimate, and none that differs in
two from one of PAIRED_POINTS points of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from dynosim.search.grid import Grid
from dynosim.search.screened import SLACK
from dynosim.search.screening import Judge, Screening

CHUNK = 8192
"""Combinations looked at and estimated together: memory does not grow with the sample."""

LEAST_POINTS, MOST_POINTS = 64, 256
"""Points whose neighbours are looked at in one round: the front, and layers behind it."""

PAIRED_POINTS = 32
"""Points from which two fields are changed at once."""

MOST_ROUNDS = 24


def spread(size: int, count: int, seed: int) -> list[int]:
    """Returns ``count`` of ``size`` flat indices, one at random of each of equal stretches."""
    edges = [size * i // count for i in range(count + 1)]
    draw = np.random.default_rng([seed, 4]).random(count)
    return [
        low + int(share * (high - low))
        for low, high, share in zip(edges, edges[1:], draw.tolist(), strict=False)
    ]


def sampled(indices: Sequence[int], judge: Judge) -> Screening | None:
    """Returns estimates of all that can run of ``indices``; None where there are none."""
    found: list[Screening] = []
    for begin in range(0, len(indices), CHUNK):
        part = judge(indices[begin : begin + CHUNK])
        if part is not None:
            found.append(part)
    return Screening.joined(found) if found else None


def refined(grid: Grid, sample: Screening, judge: Judge) -> Screening:
    """Returns ``sample`` with what is close to its front."""
    found, is_paired = sample, False
    for _ in range(MOST_ROUNDS):
        front = _layers(found, 1)
        if is_paired:
            near = [i for p in _spaced(front, PAIRED_POINTS) for i in _two_fields(grid, p)]
        else:
            near = [i for p in _layers(found, LEAST_POINTS) for i in grid.neighbours(p)]
        more = sampled(list(dict.fromkeys(near)), judge)
        found = found if more is None else Screening.joined([found, more])
        has_moved = _layers(found, 1) != front
        if is_paired and not has_moved:
            break
        is_paired = not has_moved
    return found


def _two_fields(grid: Grid, index: int) -> Iterator[int]:
    at = grid.coordinates(index)
    varied = [axis for axis, length in enumerate(grid.lengths) if length > 1]
    for one, other in combinations(varied, 2):
        for first, second in product(range(grid.lengths[one]), range(grid.lengths[other])):
            if first != at[one] and second != at[other]:
                moved = list(at)
                moved[one], moved[other] = first, second
                yield grid.index(moved)


def _layers(found: Screening, least: int) -> list[int]:
    """Returns the flat indices of the estimated front, then of what is behind it, by layers.

    Of equal estimates one; as many layers as have ``least`` points together, MOST_POINTS at most.
    """
    import moocore

    is_able = np.isfinite(found.losses).all(axis=1) & (found.margins <= SLACK)
    able = np.flatnonzero(is_able)
    # Of equals the first index, so that the order of looking decides nothing.
    candidates = np.asarray(found.candidates, dtype=np.int64)
    able = able[np.lexsort((candidates[able], *found.losses[able].T[::-1]))]
    points, first = np.unique(found.losses[able], axis=0, return_index=True)
    rows, chosen = able[first], list[int]()
    while len(rows) and len(chosen) < least:
        is_best = moocore.is_nondominated(points)
        chosen += candidates[rows[is_best]].tolist()
        rows, points = rows[~is_best], points[~is_best]
    return chosen[:MOST_POINTS]


def _spaced(points: Sequence[int], most: int) -> list[int]:
    """Returns at most so many of them, both ends among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]
