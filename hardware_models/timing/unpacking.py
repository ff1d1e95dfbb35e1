"""GEMMs whose weights are unpacked to 16 bits inside the kernel, where no table holds them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.weight_format import WeightFormat

ASYNCHRONOUS = (9, 10)
"""Major compute capabilities whose tensor cores are fast through asynchronous instructions only;
kernels that unpack weights (Marlin) use the older ones there too."""


@dataclass(frozen=True, eq=False)
class Unpacking:
    """``penalties`` of 4-bit and 8-bit weights over tokens / ridge; ``data/unpacking.yaml``."""

    tokens_over_ridge: FloatArray
    penalties: dict[str, FloatArray]
    asynchronous_loss: float


@lru_cache(maxsize=1)
def unpacking() -> Unpacking:
    """Returns the shipped figures."""
    card = read_yaml(DATA / "unpacking.yaml")
    return Unpacking(
        np.array(card["tokens_over_ridge"], dtype=np.float64),
        {name: np.array(card[name], dtype=np.float64) for name in ("int4_wo", "int8_wo")},
        float(card["asynchronous_loss"]),
    )


def unpacked_gemm_s(gpu: Gpu, m: FloatArray, n: float, k: float, form: WeightFormat) -> FloatArray:
    """Returns roofline seconds of the product times what unpacking loses, shape (len(m),).

    Relative to the bfloat16 kernel on the same GPU: the loss is largest where that kernel turns
    from reading weights to arithmetic, the ridge.
    """
    measured = unpacking()
    kind = "int4_wo" if form.weight_bytes < 0.75 else "int8_wo"
    peak = roofline.peak_flop_s(gpu, "bfloat16")
    over_ridge = m * gpu.hbm_bandwidth_bytes_s / peak
    penalty = np.interp(over_ridge, measured.tokens_over_ridge, measured.penalties[kind])
    if int(gpu.compute_capability) in ASYNCHRONOUS:
        slower = (("bfloat16", peak / measured.asynchronous_loss),)
        gpu = replace(gpu, peak_flop_s=slower)
    return np.asarray(roofline.gemm_s(gpu, m, n, k, form) * penalty, dtype=np.float64)
