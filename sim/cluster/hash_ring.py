"""Consistent hashing: keys and replicas on one ring, so that few keys move when replicas do."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import Protocol

# More points spread keys more evenly: replicas' shares then differ by about 1 / sqrt(points).
POINTS = 128
_WORD = (1 << 64) - 1


class Numbered(Protocol):
    """A replica that knows its number."""

    @property
    def number(self) -> int:
        """Which replica it is, from 0."""
        ...


def mixed(value: int) -> int:
    """Returns 64 well-mixed bits of a whole number (the finaliser of SplitMix64, Steele 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


def hash_key(values: list[int]) -> int:
    """Returns 64 bits that stand for a list of whole numbers."""
    key = len(values)
    for value in values:
        key = mixed(key ^ (value & _WORD))
    return key


class HashRing:
    """``num_replicas`` replicas at 128 points each, laid out by ``seed``."""

    def __init__(self, num_replicas: int, seed: int) -> None:
        own = mixed(seed)
        points = sorted(
            (mixed(own ^ mixed(replica * POINTS + point)), replica)
            for replica in range(num_replicas)
            for point in range(POINTS)
        )
        self._num_replicas = num_replicas
        self._at = [at for at, _ in points]
        self._owners = [owner for _, owner in points]

    def owner(self, key: int) -> int:
        """Returns the replica of the first point at or behind a 64-bit key."""
        return self._owners[bisect(self._at, key) % len(self._owners)]

    def first_of(self, key: int, replicas: Sequence[Numbered]) -> int:
        """Returns the place in ``replicas`` of the one that the ring meets first from a key on."""
        if len(replicas) == self._num_replicas:
            return self.owner(key)
        place_of = {view.number: place for place, view in enumerate(replicas)}
        return next(place_of[number] for number in self.from_key(key) if number in place_of)

    def from_key(self, key: int) -> Iterator[int]:
        """Yields every replica once, in the order in which the ring is met from a key on."""
        owners = self._owners
        start = bisect(self._at, key)
        seen = 0
        for step in range(len(owners)):
            owner = owners[(start + step) % len(owners)]
            if not seen >> owner & 1:
                seen |= 1 << owner
                yield owner
