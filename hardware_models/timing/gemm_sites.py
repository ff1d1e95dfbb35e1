"""Latencies at measured widths, each a line over tokens: GEMMs of one dtype, and passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.timing.interpolate import held_line, nearest_sites
from dynosim.hardware_models.timing.tables import OpTable

WARM_UTILISATION = 1.05
"""Weights read faster than this over the memory's peak rate came from the L2 cache."""
FEW_TOKENS = 16
"""Up to this many, a product with large weights takes the time to read them."""

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

    def cold(self, weight_bytes: float, l2_bytes: float, bandwidth_bytes_s: float) -> GemmSites:
        """Returns the sites as they are when no weight is in the L2 cache, as between layers.

        A benchmark that repeats one product reads weights smaller than the cache from there: up to
        3.5 times the memory's peak rate on GPUs with a large L2 and slow memory. Where any site
        beats the peak, those that fit twice into the cache take at least a launch and the read at
        the rate that larger ones reach. ``weight_bytes`` are those of one element.
        """
        read_bytes = self.sites.prod(axis=1) * weight_bytes
        pairs = zip(read_bytes, self.m, self.seconds, strict=True)
        rates = [size / s[m <= FEW_TOKENS].min(initial=np.inf) for size, m, s in pairs]
        is_large = read_bytes >= 2.0 * l2_bytes
        if max(rates) < WARM_UTILISATION * bandwidth_bytes_s or not is_large.any():
            return self
        rate = float(np.median(np.array(rates)[is_large]))
        launch_s = min(float(s.min()) for s in self.seconds)
        floors = np.where(is_large, 0.0, launch_s + read_bytes / rate)
        raised = (np.maximum(s, f) for s, f in zip(self.seconds, floors, strict=True))
        return GemmSites(self.sites, self.m, tuple(raised))

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
        """Returns seconds for every ``m``: of the nearest k, what is beyond its own at its rate."""
        near = int(np.argmin(np.abs(np.log2(self.k / k))))
        elements = m * (k / self.k[near])
        return held_line(elements, self.m[near], self.seconds[near], lambda x: x)
