"""Random streams, one a purpose, so that changing one knob does not reshuffle the others."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Returns the generator of ``purpose`` ("arrivals", "input lengths", …) under ``seed`` >= 0.

    Streams of different purposes are independent; the same pair always gives the same numbers.
    """
    key = zlib.crc32(purpose.encode())
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(key,))))
