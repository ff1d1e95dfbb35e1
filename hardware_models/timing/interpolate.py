"""Between and beyond measured points: lines inside the grid, held utilisation outside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IndexArray

Roof = Callable[[FloatArray], FloatArray]
"""Roofline seconds as a function of the one free axis, everything else fixed."""

NEAREST_SITES = 4
"""Sites blended where a shape was not measured. Utilisation is smooth in log2 of the shape, and
inverse-distance weights over four sites leave 3.6 % median error on held-out sites
(aiconfigurator-core 0.12.0, docs/design/perf_interp_design.md)."""


def held_line(x: FloatArray, xs: FloatArray, ys: FloatArray, roof: Roof) -> FloatArray:
    """Returns seconds at ``x``, shape (len(x),): linear between the points (``xs``, ``ys``).

    Beyond the last and before the first point the boundary's utilisation, roofline over
    latency, is held. Linear and not log-log: on a doubling grid blending logarithms is biased
    by up to 6 % per axis.
    """
    seconds = np.interp(x, xs, ys)
    above, below = x > xs[-1], x < xs[0]
    if above.any():
        seconds[above] = ys[-1] * roof(x[above]) / roof(xs[-1:])
    if below.any():
        # A launch cannot be divided: hold the first latency where the roofline would shrink it.
        seconds[below] = ys[0]
    return seconds


def nearest_sites(
    wanted: FloatArray, sites: FloatArray, count: int = NEAREST_SITES
) -> tuple[IndexArray, FloatArray]:
    """Returns the nearest sites and their weights (summing to 1) by inverse squared distance.

    ``wanted`` has shape (axes,) and ``sites`` (sites, axes), all positive; distance is Euclidean
    in octaves. A site that matches exactly is returned alone.
    """
    distance = np.sqrt(((np.log2(sites) - np.log2(wanted)) ** 2).sum(axis=1))
    order = np.argsort(distance, kind="stable")[:count]
    if distance[order[0]] == 0.0:
        return order[:1], np.ones(1)
    weight = distance[order] ** -2.0
    return order, weight / weight.sum()


def lower_envelope(latency: FloatArray) -> FloatArray:
    """Returns the largest array that never exceeds ``latency`` and rises along every axis.

    Measured latencies carry upward spikes (interference, a kernel chosen badly), up to ninefold
    in the worst rows; what a larger shape achieves, a smaller one can by padding. NaN passes.
    """
    rising = np.where(np.isnan(latency), np.inf, latency)
    for axis in range(latency.ndim):
        rising = np.flip(np.minimum.accumulate(np.flip(rising, axis), axis=axis), axis)
    return np.where(np.isnan(latency), np.nan, rising)
