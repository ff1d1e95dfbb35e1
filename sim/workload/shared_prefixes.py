"""Synthetic prompts that start alike: one shared prefix, or groups of them by popularity."""

from __future__ import annotations

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.prefix_chains import offsets_of


def zipf_popularity(num_prefixes: int, exponent: float) -> FloatArray:
    """Returns the share of requests of each prefix: rank^-exponent, so 0 is uniform."""
    if num_prefixes < 1:
        raise UserError(f"`num_prefixes` is {num_prefixes}", hint="allowed: a whole number >= 1")
    if not 0 <= exponent < np.inf:
        raise UserError(f"`prefix_zipf` is {exponent}", hint="allowed: a number >= 0")
    weight = np.arange(1, num_prefixes + 1, dtype=np.float64) ** -exponent
    share: FloatArray = weight / weight.sum()
    return share


def shared_prefixes(
    n: int,
    prefix_tokens: int,
    block_tokens: int,
    popularity: FloatArray,
    rng: np.random.Generator,
) -> tuple[IntArray, IntArray]:
    """Returns ids and offsets of the full blocks that each of ``n`` prompts shares.

    Each prompt starts with ``prefix_tokens`` tokens of a prefix drawn by ``popularity``; a last
    partial block of it is not shareable. Prefix g has ids g·B, g·B + 1, … of B full blocks.
    """
    blocks = prefix_tokens // block_tokens
    # Inverse of the cumulated shares: one draw a request whatever the popularity is.
    edges = np.cumsum(popularity)[:-1]
    group = np.searchsorted(edges, rng.random(n), side="right").astype(np.int64)
    ids = group[:, None] * blocks + np.arange(blocks, dtype=np.int64)
    return ids.reshape(-1), offsets_of(np.full(n, blocks, dtype=np.int64))
