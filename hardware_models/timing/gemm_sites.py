"""Latencies at measured widths, each a line over tokens: GEMMs of one dtype, and passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.timing.interpolate import held_line, nearest_sites
from dynosim.hardware_models.timing.tables import OpTable

GemmRoof = Callable[[FloatArray, float, float], FloatArray]
"""Roofline seconds of (m array, n, k)."""


@dataclass(frozen=True, eq=False)
class GemmSites:
    """Measured seconds over m for every (n, k); ``sites`` has shape (sites, 2)."""

    sites: FloatArray
    m: tuple[FloatArray, ...]
    seconds: tuple[FloatArray, ...]

    @classmethod
    def of(cls, table: OpTable) -> GemmSites:
        """Returns the sites of a table with keys n, k, m (rows sorted in that order)."""
        n, k, m = (table.column(key).astype(np.float64) for key in ("n", "k", "m"))
        starts = np.flatnonzero((np.diff(n) != 0) | (np.diff(k) != 0)) + 1
        first = np.concatenate(([0], starts))
        return cls(
            np.column_stack((n[first], k[first])),
            tuple(np.split(m, starts)),
            tuple(np.split(table.latency_s, starts)),
        )

    def seconds_at(self, m: FloatArray, n: int, k: int, roof: GemmRoof) -> FloatArray:
        """Returns seconds for every ``m``, shape (len(m),).

        A measured site answers by lines over m; elsewhere the utilisations of the nearest sites
        are averaged by inverse squared distance in octaves, and the roofline divided by that.
        """
        nearest, weight = nearest_sites(np.array([n, k], dtype=np.float64), self.sites)
        if len(nearest) == 1:
            return self._site(int(nearest[0]), m, roof)
        utilisation = np.zeros(len(m))
        for site, share in zip(nearest.tolist(), weight.tolist(), strict=True):
            site_roof = roof(m, self.sites[site, 0], self.sites[site, 1])
            utilisation += share * site_roof / self._site(site, m, roof)
        return roof(m, n, k) / utilisation

    def _site(self, site: int, m: FloatArray, roof: GemmRoof) -> FloatArray:
        n, k = self.sites[site].tolist()
        return held_line(m, self.m[site], self.seconds[site], lambda x: roof(x, n, k))


@dataclass(frozen=True, eq=False)
class CurveSites:
    """Measured seconds over m of a kernel that passes once over (m x k), for every k."""

    k: FloatArray
    m: tuple[FloatArray, ...]
    seconds: tuple[FloatArray, ...]

    @classmethod
    def of(cls, table: OpTable) -> CurveSites:
        """Returns the sites of a table with keys k, m (rows sorted in that order)."""
        k, m = (table.column(key).astype(np.float64) for key in ("k", "m"))
        starts = np.flatnonzero(np.diff(k)) + 1
        first = np.concatenate(([0], starts))
        return cls(k[first], tuple(np.split(m, starts)), tuple(np.split(table.latency_s, starts)))

    def seconds_at(self, m: FloatArray, k: int) -> FloatArray:
        """Returns seconds for every ``m``: of the nearest k, elements beyond its own at its rate."""
        near = int(np.argmin(np.abs(np.log2(self.k / k))))
        elements = m * (k / self.k[near])
        return held_line(elements, self.m[near], self.seconds[near], lambda x: x)
