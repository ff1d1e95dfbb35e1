"""One seed, one independent random stream per purpose."""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np

from dynosim.hardware_models.arrays import FloatArray

_Key = tuple[int, int]


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Returns the generator of ``purpose``: turning one knob never reshuffles another's draws."""
    return np.random.default_rng(_sequence(seed, purpose))


def draws(seed: int, purpose: str, at: tuple[int, int], count: int) -> FloatArray:
    """Returns ``count`` uniform draws from [0, 1) that belong to the place ``at`` of a stream.

    They depend on nothing else: not on which places were asked for before, nor in what order.
    (A counter-based generator, Philox: Salmon et al., SC 2011; raw bits, which numpy keeps stable.)
    """
    generator = np.random.Philox(key=_key(seed, purpose), counter=(0, *at, 0))
    return np.asarray((generator.random_raw(count) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


@lru_cache(maxsize=64)
def _key(seed: int, purpose: str) -> _Key:
    first, second = _sequence(seed, purpose).generate_state(2, np.uint64).tolist()
    return first, second


def _sequence(seed: int, purpose: str) -> np.random.SeedSequence:
    key = zlib.crc32(purpose.encode())
    return np.random.SeedSequence(entropy=seed, spawn_key=(key,))
