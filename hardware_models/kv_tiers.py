"""Tiers of KV cache below the GPU's memory: how large and how fast they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from dynosim.hardware_models.cards import DATA, read_yaml, value_of
from dynosim.hardware_models.engine_args import Positive
from dynosim.hardware_models.resolve import ResolvedEngine

TierWrite = Literal["write_through", "on_evict"]
TierLoad = Literal["if_faster", "always"]
Gib = Annotated[float, Ge(0)]
GbPerS = Annotated[float, Gt(0)]

GIB = float(1 << 30)


@dataclass(frozen=True, kw_only=True)
class KvTierOptions:
    """Where KV blocks go that leave the GPU, and when they come back; no tier by default."""

    kv_host_gib: Gib = 0.0
    """Host memory for KV blocks, per replica over all its GPUs (vLLM's --kv-offloading-size)."""
    kv_host_gb_s: GbPerS | None = None
    """Rate of copies between host and each GPU, either way; by default a share of its PCIe link."""
    kv_disk_gib: Gib = 0.0
    """Local NVMe for KV blocks, per replica."""
    kv_disk_gb_s: GbPerS | None = None
    """Rate of the NVMe of a replica, reads and writes together."""
    kv_shared_gib: Gib = 0.0
    """Storage for KV blocks that all replicas share, as one that any of them can find."""
    kv_shared_gb_s: GbPerS | None = None
    """Rate of one replica to shared storage."""
    kv_shared_total_gb_s: GbPerS | None = None
    """Rate of shared storage to all replicas together."""
    kv_tier_write: TierWrite = "write_through"
    """Blocks are copied to the first tier when computed, or only when the GPU evicts them."""
    kv_tier_load: TierLoad = "if_faster"
    """Blocks found in a tier are loaded where that is faster than computing them, or always."""
    kv_tier_loads: Positive = 16
    """Requests of a replica whose blocks are loaded at once; others wait their turn."""


@dataclass(frozen=True, kw_only=True)
class TierSpec:
    """One tier: what it holds and how fast.

    ``bandwidth_bytes_s`` is that of a replica, ``total_bandwidth_bytes_s`` of all that share it.
    """

    name: str
    capacity_bytes: float
    bandwidth_bytes_s: float
    latency_s: float
    total_bandwidth_bytes_s: float | None = None

    @property
    def is_shared(self) -> bool:
        """Whether replicas share it."""
        return self.total_bandwidth_bytes_s is not None


@dataclass(frozen=True, kw_only=True)
class KvTiers:
    """The tiers of a replica, fastest first; blocks pass the host's link from any of them.

    ``block_bytes`` are those of a KV block over all GPUs of the replica, ``link_bytes_s`` is the
    rate of their links together, one way.
    """

    tiers: tuple[TierSpec, ...]
    block_bytes: float
    link_bytes_s: float
    writes_through: bool
    loads_always: bool
    most_loads: int

    @property
    def is_shared(self) -> bool:
        """Whether replicas share one of the tiers."""
        return any(tier.is_shared for tier in self.tiers)


def kv_tiers(
    options: KvTierOptions, engine: ResolvedEngine, block_bytes_per_gpu: float
) -> KvTiers | None:
    """Returns the tiers of a replica of ``engine``, None where it has none."""
    gpus = engine.args.gpus_per_replica
    card = read_yaml(DATA / "kv_tiers.yaml")
    per_gpu = _rate(options.kv_host_gb_s)
    if per_gpu is None:
        per_gpu = float(value_of(card["host"], "pcie_share")) * engine.gpu.pcie_bandwidth_bytes_s
    link = gpus * per_gpu
    tiers = []
    for name, gib, rate in (
        ("host", options.kv_host_gib, link),
        ("disk", options.kv_disk_gib, _rate(options.kv_disk_gb_s)),
        ("shared", options.kv_shared_gib, _rate(options.kv_shared_gb_s)),
    ):
        if not gib:
            continue
        defaults = card[name]
        total = None
        if name == "shared":
            total = _rate(options.kv_shared_total_gb_s)
            total = total or float(value_of(defaults, "total_bandwidth_bytes_s"))
        tiers.append(
            TierSpec(
                name=name,
                capacity_bytes=gib * GIB,
                bandwidth_bytes_s=rate or float(value_of(defaults, "bandwidth_bytes_s")),
                latency_s=float(value_of(defaults, "latency_s")),
                total_bandwidth_bytes_s=total,
            )
        )
    if not tiers:
        return None
    return KvTiers(
        tiers=tuple(tiers),
        block_bytes=gpus * block_bytes_per_gpu,
        link_bytes_s=link,
        writes_through=options.kv_tier_write == "write_through",
        loads_always=options.kv_tier_load == "always",
        most_loads=options.kv_tier_loads,
    )


def _rate(gb_s: float | None) -> float | None:
    return None if gb_s is None else gb_s * 1e9
