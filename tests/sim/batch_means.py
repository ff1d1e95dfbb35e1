"""Confidence in the mean of a simulated series, whose neighbours depend on each other."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

from dynosim.hardware_models.arrays import FloatArray

BATCHES = 20
CONFIDENCE = 0.99


def assert_mean(
    values: FloatArray, expected: float, *, within: float, warm_up: float = 0.1
) -> None:
    """Asserts that ``expected`` lies in the confidence interval of the mean of a series.

    The interval comes from means of batches that are long against what neighbours share (Law,
    *Simulation Modeling and Analysis*, 5th ed., 9.5.3), after ``warm_up``, a share of the series.
    It has to be narrower than ``within`` of ``expected`` to either side: a wide one shows nothing.
    """
    settled = values[int(len(values) * warm_up) :]
    batches = np.array([part.mean() for part in np.array_split(settled, BATCHES)])
    quantile = float(stdtrit(BATCHES - 1, 0.5 + 0.5 * CONFIDENCE))
    half = quantile * float(batches.std(ddof=1)) / math.sqrt(BATCHES)
    mean = float(batches.mean())
    assert half <= within * abs(expected), f"± {half / abs(expected):.1%} shows too little"
    assert abs(mean - expected) <= half, f"{mean:.6g} ± {half:.2g}, expected {expected:.6g}"
