"""Decode attention of sequences of unequal context takes longer than of equal ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.timing.decode_grid import DecodeGrid
from dynosim.hardware_models.timing.tables import OpTable


@dataclass(frozen=True, eq=False)
class UnevenDecode:
    """Seconds that a token adds by which the longest context exceeds the mean, all layers together.

    Where a kernel gives each (sequence, KV head) to one processor, the longest one's heads stream
    alone when all others have ended: that time is in proportion to what the longest has beyond the
    mean, and hardly depends on the others. ``s_per_token`` has shape (sizes,), by ``sequences``.
    """

    sequences: FloatArray
    s_per_token: FloatArray

    @classmethod
    def of(cls, rows: OpTable, even: DecodeGrid, layers: int) -> UnevenDecode:
        """Returns what measured batches take beyond ``even`` ones of their mean; mean by size."""
        names = ("num_decode", "mean_tokens", "longest_tokens")
        sizes, means, longest = (rows.column(name).astype(np.float64) for name in names)
        at_mean = [even.at(int(n), m) for n, m in zip(sizes, means, strict=True)]
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = (rows.latency_s - np.array(at_mean)) / (longest - means)
        known = np.asarray(rows.axis("num_decode"), dtype=np.float64)
        kept = longest > means
        added = [float(np.mean(excess[kept & (sizes == n)])) for n in known]
        return cls(known, layers * np.maximum(added, 0.0))

    def by_size(self, most: int) -> list[float]:
        """Returns the seconds per token for 0 ... ``most`` sequences; ends are held, 0 for one."""
        sizes = np.arange(most + 1, dtype=np.float64)
        seconds = np.interp(sizes, self.sequences, self.s_per_token)
        seconds[:2] = 0.0
        return [float(s) for s in seconds]
