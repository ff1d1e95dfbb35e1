"""How replicas start: the options of a deployment that say so."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from annotated_types import Ge, Gt, Le

NonNegative = Annotated[float, Ge(0)]
Rate = Annotated[float, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class StartupOptions:
    """What a new replica goes through before it can serve; sizes come from the model."""

    startup: str = "cold"
    """How replicas start: cold, stream (weights by many readers), snapshot, sleep_1, sleep_2."""
    startup_s: NonNegative | None = None
    """Seconds from asking for a replica to its first request, instead of the stages' sum."""
    startup_provision_s: NonNegative = 0.0
    """Seconds until a new replica has a node."""
    startup_image_gib: NonNegative = 0.0
    """Size of the container image to pull; 0 where nodes have it."""
    startup_registry_gb_s: Rate | None = None
    """GB/s of the image registry, shared by concurrent starts."""
    startup_storage: str = "volume"
    """Where weights and snapshots are read from: gp3, io2, nfs, nvme, page_cache, s3, volume."""
    startup_storage_gb_s: Rate | None = None
    """GB/s of that storage, shared by concurrent starts; by default its card's."""
    startup_compile_cache: bool = False
    """Compiled graphs of an earlier start are found on disk."""
    startup_cv: NonNegative = 0.0
    """Coefficient of variation of a start's own seconds (lognormal), bytes not included."""
    snapshot_gpu: str | None = None
    """GPU that the snapshot was taken on; by default the deployment's."""
    snapshot_driver: str | None = None
    """GPU driver that the snapshot was taken under; by default the nodes'."""
    gpu_driver: str | None = None
    """GPU driver of the nodes, as in 580.65."""
    snapshot_keeps_kv: bool = False
    """The KV cache was not unmapped before the snapshot: all of it is read back, empty."""
    snapshot_failure_rate: Annotated[float, Ge(0), Le(1)] = 0.0
    """Share of restores that fail and are followed by a cold start."""


STARTUP_FIELDS = tuple(field.name for field in fields(StartupOptions))
