"""The largest load that meets a condition: doubling until it does not, then bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dynosim.planning.load import Kind, Load

PRECISION = 0.02
"""The two sides of a boundary differ by less than this share, or by one request in flight."""
LEAST_RATE = 1e-4
"""Requests per second; no engine that can serve at all is slower."""

Meets = Callable[[Load], bool]


@dataclass(frozen=True)
class Boundary:
    """``holds`` is the largest load found to meet the condition, ``fails`` the next that does not.

    ``holds`` is 0 where no load does; ``fails`` is infinite where none up to the cap fails.
    """

    holds: float
    fails: float


def find_boundary(meets: Meets, kind: Kind, *, start: float, cap: float) -> Boundary:
    """Returns where ``meets`` turns false between 0 and ``cap``, looking from ``start`` on.

    Assumes that a larger load is harder; where that does not hold, a boundary is found all the
    same, but there may be others above it.
    """
    size = min(max(start, 1.0) if kind == "concurrency" else start, cap)
    if meets(Load(kind=kind, size=size)):
        found = _doubled(meets, kind, size, cap)
    else:
        found = _halved(meets, kind, size)
    return _bisected(meets, kind, found)


def _doubled(meets: Meets, kind: Kind, size: float, cap: float) -> Boundary:
    while size < cap:
        larger = min(2.0 * size, cap)
        if not meets(Load(kind=kind, size=larger)):
            return Boundary(size, larger)
        size = larger
    return Boundary(size, float("inf"))


def _halved(meets: Meets, kind: Kind, size: float) -> Boundary:
    while size > LEAST_RATE:
        smaller = float(int(size / 2)) if kind == "concurrency" else size / 2
        if smaller == 0:
            break
        if meets(Load(kind=kind, size=smaller)):
            return Boundary(smaller, size)
        size = smaller
    return Boundary(0.0, size)


def _bisected(meets: Meets, kind: Kind, found: Boundary) -> Boundary:
    low, high = found.holds, found.fails
    if low == 0 or high == float("inf"):
        return found
    while not is_fine(kind, low, high):
        middle = float(round((low + high) / 2)) if kind == "concurrency" else (low * high) ** 0.5
        if meets(Load(kind=kind, size=middle)):
            low = middle
        else:
            high = middle
    return Boundary(low, high)


def is_fine(kind: Kind, low: float, high: float) -> bool:
    """Whether two sides of a boundary are close enough to stop."""
    is_next = kind == "concurrency" and high - low <= 1
    return is_next or high <= low * (1 + PRECISION)
