"""GPUs as data rows: memory, bandwidth, peak rates, links, power and prices."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU type; every figure's source and date stand beside it in ``data/gpus/*.yaml``.

    ``memory_bytes`` is what the driver reports as total, not the nameplate. Bandwidths of links
    are per GPU and direction. ``peak_flop_s`` are dense rates as (dtype, FLOP/s) pairs.
    ``nvlink_bandwidth_bytes_s`` is None where GPUs talk over PCIe. ``tables`` names the folder
    of measured kernel tables (None: roofline only).
    """

    key: str
    name: str
    aliases: tuple[str, ...]
    compute_capability: float
    memory_bytes: int
    hbm_bandwidth_bytes_s: float
    peak_flop_s: tuple[tuple[str, float], ...]
    nvlink_bandwidth_bytes_s: float | None
    pcie_bandwidth_bytes_s: float
    internode_bandwidth_bytes_s: float
    gpus_per_node: int
    tdp_w: float
    list_price_usd: float | None
    cloud_price_usd_hour: float | None
    tables: str | None

    def peak(self, dtype: str) -> float:
        """Returns the dense peak rate in FLOP/s; KeyError where the GPU has no such dtype."""
        return dict(self.peak_flop_s)[dtype]
