"""Which groups a fit may see, and which judge it: decided by the group's name alone."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

Half = Literal["fit", "held_out"]


def half_of(group: str) -> Half:
    """Returns the half that a group belongs to, the same on every machine and in every version.

    Groups, not rows, are split: rows of one group share their errors, so that a fit on half of
    them would be judged by what it has seen.
    """
    return "fit" if fold_of(group, 2) == 0 else "held_out"


def fold_of(group: str, k: int) -> int:
    """Returns a group's fold, 0 to k - 1, for k-fold cross-validation."""
    if k < 1:
        raise ValueError(f"k must be at least 1, found {k}")
    digest = blake2b(group.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % k
