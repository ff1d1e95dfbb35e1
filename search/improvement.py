"""Which candidates promise to move the frontier most, given predictions of all of them."""

from __future__ import annotations

import numpy as np

from dynosim.hardware_models.arrays import FloatArray

MOST_RIVALS = 400
"""Candidates among which contributions are compared at once."""


def most_promising(
    predicted: FloatArray, front: FloatArray, reference: FloatArray, count: int
) -> list[int]:
    """Returns up to ``count`` rows of ``predicted`` that would add most hypervolume to ``front``.

    All values are losses. Rows that nothing dominates come first, by what each would add alone;
    what is picked joins the front before the next is chosen, so that picks spread out. Fewer are
    returned where no more would add anything.
    """
    chosen: list[int] = []
    front = front[(front < reference).all(axis=1)]
    left = np.flatnonzero((predicted < reference).all(axis=1))
    while len(chosen) < count and len(left):
        gains = _gains(predicted[left], front, reference)
        left = left[gains > 0.0]
        if not len(left):
            break
        best = left[int(np.argmax(gains[gains > 0.0]))]
        chosen.append(int(best))
        front = np.vstack((front, predicted[best]))
        left = left[left != best]
    return chosen


def _gains(points: FloatArray, front: FloatArray, reference: FloatArray) -> FloatArray:
    """Returns the hypervolume that each point would add to the front, 0 where it is dominated."""
    import moocore

    gains = np.zeros(len(points))
    if points.shape[1] == 2:
        return _gains_2d(points, front, reference)
    is_new = ~dominated(points, front)
    rows = np.flatnonzero(is_new)
    if len(rows) > MOST_RIVALS:
        # Those that no other candidate dominates are where the gain is.
        rows = rows[moocore.is_nondominated(points[rows])][:MOST_RIVALS]
    base = float(moocore.hypervolume(front, ref=reference)) if len(front) else 0.0
    for row in rows:
        both = np.vstack((front, points[row]))
        gains[row] = float(moocore.hypervolume(both, ref=reference)) - base
    return gains


def dominated(points: FloatArray, front: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Returns which points are no better than some point of the front in anything."""
    worse = np.zeros(len(points), dtype=bool)
    for row in front:
        worse |= (points >= row).all(axis=1)
    return worse


def _gains_2d(points: FloatArray, front: FloatArray, reference: FloatArray) -> FloatArray:
    """Returns the gains in two objectives: the area between a point and the stairs of the front."""
    import moocore

    if len(front):
        front = front[moocore.is_nondominated(front, keep_weakly=False)]
        front = front[np.argsort(front[:, 0])]
    left = np.concatenate(([-np.inf], front[:, 0]))
    right = np.concatenate((front[:, 0], [reference[0]]))
    height = np.concatenate(([reference[1]], front[:, 1]))
    begin = np.maximum(points[:, :1], left)
    width = np.maximum(right - begin, 0.0)
    above = np.maximum(height - points[:, 1:], 0.0)
    return np.asarray((width * above).sum(axis=1))
