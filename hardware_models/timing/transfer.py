"""Seconds measured on one GPU, carried to another that runs the same kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import inf

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.gpus import Gpu

SUSTAINED_SHARE = 0.95
"""Share of their peak that tensor cores sustain where nothing else binds: best large bfloat16
GEMMs (m, n, k >= 4096) of the shipped tables, 0.96 on A100, 0.95 on H100, 0.98 on RTX PRO 6000."""

HALVED = 1.1
"""Tensor rates per vector rate that differ by less than this are one rate, rounded twice."""


def same_generation(a: Gpu, b: Gpu) -> bool:
    """Whether kernels of one run unchanged on the other: same major compute capability, minor
    ones less than 5 apart (Ampere's 8.0 and 8.6 differ, Blackwell's 10.0 and 10.3 do not)."""
    close = abs(a.compute_capability - b.compute_capability) < 0.5
    return close and int(a.compute_capability) == int(b.compute_capability)


@lru_cache(maxsize=256)
def full_rate(gpu: Gpu, measured_on: Gpu) -> Gpu:
    """Returns ``gpu`` with the tensor rates its chip would have at the full rate of its kind.

    Within a generation the float32 vector rate stands for multiprocessors times clock. Vendors
    sell the same chips with slower tensor cores (GeForce halves them with float32 accumulation,
    H20 keeps a quarter): everything else in a kernel is as fast as before. Returns ``gpu`` itself
    where its tensor cores are not slower.
    """
    here, there = dict(gpu.peak_flop_s), dict(measured_on.peak_flop_s)
    if not same_generation(gpu, measured_on) or "float32" not in here or "float32" not in there:
        return gpu
    chip = here["float32"] / there["float32"]
    peaks = {dtype: _fuller(peak, chip * there.get(dtype, 0.0)) for dtype, peak in here.items()}
    return gpu if peaks == here else replace(gpu, peak_flop_s=tuple(peaks.items()))


def _fuller(own: float, full: float) -> float:
    return full if full > HALVED * own else own


def carried(
    seconds: FloatArray,
    near: FloatArray,
    wanted: Callable[[Gpu], FloatArray],
    gpu: Gpu,
    measured_on: Gpu,
) -> FloatArray:
    """Returns seconds on ``gpu``: utilisation is what is transferred.

    ``near`` are the roofline's seconds of what was measured, ``wanted`` those of what is asked
    for, on a given GPU. Where the tensor cores are slower than the chip's, the utilisation is that
    of the full-rate chip, and the time at least what the slower cores sustain.
    """
    full = full_rate(gpu, measured_on)
    moved = seconds * wanted(full) / near
    if full is gpu:
        return moved
    arithmetic = wanted(replace(gpu, hbm_bandwidth_bytes_s=inf))
    return np.maximum(moved, arithmetic / SUSTAINED_SHARE)
