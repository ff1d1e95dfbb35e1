"""A deployment: engines, how many replicas of them, and how requests reach them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from dynosim.hardware_models.engine_args import EngineArgs, Positive
from dynosim.hardware_models.kv_tiers import Gib, KvTierOptions
from dynosim.hardware_models.kv_transfer import Fabric, Overlap
from dynosim.hardware_models.startup.options import StartupOptions
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.scaling.options import (
    Above0,
    NonNegative,
    ScalingMetric,
    ScalingOptions,
)

_PREFILL = "prefill_"
OF_PREFILL_POOL = (
    "gpu",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "router",
    "kv_host_gib",
    "kv_disk_gib",
    "kv_shared_gib",
    "autoscaler",
    "min_replicas",
    "max_replicas",
    "autoscaler_metric",
    "autoscaler_target",
    "autoscaler_lower",
    "autoscaler_step",
    "autoscaler_interval_s",
    "autoscaler_up_window_s",
    "autoscaler_down_window_s",
    "autoscaler_schedule",
    "warm_replicas",
    "startup",
)
"""What a prefill pool may have of its own, under the same name with ``prefill_`` before it."""
NOBODY = "none"
"""The autoscaler of a prefill pool that has none although the other has."""


@dataclass(frozen=True, kw_only=True)
class Deployment(ScalingOptions, StartupOptions, RouterOptions, KvTierOptions, EngineArgs):
    """Engine arguments plus replicas and router: one point of a search space, hashable.

    With ``prefill_replicas`` there are two pools. The plain fields then describe the one that
    decodes; where a ``prefill_`` field is None, its plain one holds for both.
    """

    replicas: Positive = 1
    """Engines behind the router; with an autoscaler, at first."""
    prefill_replicas: Annotated[int, Ge(0)] = 0
    """Engines that compute prompts for the others, which then only decode; 0: all do both."""
    prefill_gpu: str | None = None
    """GPU of the prefill engines, if another."""
    prefill_tensor_parallel_size: Positive | None = None
    """GPUs that share every layer of a prefill engine, if others."""
    prefill_pipeline_parallel_size: Positive | None = None
    """Stages of a prefill engine, if others."""
    prefill_data_parallel_size: Positive | None = None
    """Ranks of a prefill engine, if others."""
    prefill_enable_expert_parallel: bool | None = None
    """Whether GPUs of a prefill engine hold whole experts, if other."""
    prefill_max_num_seqs: Positive | None = None
    """Sequences that a prefill engine runs at once, if others."""
    prefill_max_num_batched_tokens: Positive | None = None
    """Token budget of a step of a prefill engine, if another."""
    prefill_gpu_memory_utilization: Annotated[float, Gt(0), Le(1)] | None = None
    """Share of a GPU's memory that a prefill engine may take, if another."""
    prefill_router: str | None = None
    """How prompts are spread over the prefill engines, if otherwise."""
    prefill_kv_host_gib: Gib | None = None
    """Host memory for KV blocks of a prefill engine, if other; 0 for none."""
    prefill_kv_disk_gib: Gib | None = None
    """Local NVMe for KV blocks of a prefill engine, if other."""
    prefill_kv_shared_gib: Gib | None = None
    """Storage for KV blocks that prefill engines share, if other; where both pools have it, they
    share it with each other."""
    prefill_autoscaler: str | None = None
    """Who decides how many prefill engines there are, if another; none for nobody."""
    prefill_min_replicas: Annotated[int, Ge(0)] | None = None
    """Fewest prefill engines, if others."""
    prefill_max_replicas: Positive | None = None
    """Most prefill engines, if others."""
    prefill_autoscaler_metric: ScalingMetric | None = None
    """What is looked at in the prefill pool, if other; slo_attainment is of TTFT there, and of TPOT
    in the other pool."""
    prefill_autoscaler_target: Above0 | None = None
    """Value of the metric that the prefill pool's autoscaler aims at, if another."""
    prefill_autoscaler_lower: NonNegative | None = None
    """Value below which prefill engines are taken away (threshold), if another."""
    prefill_autoscaler_step: Positive | None = None
    """Prefill engines added or taken away at once (threshold), if others."""
    prefill_autoscaler_interval_s: Above0 | None = None
    """Seconds between two decisions on the prefill pool, if others."""
    prefill_autoscaler_up_window_s: NonNegative | None = None
    """Stabilisation window before prefill engines are added, if another."""
    prefill_autoscaler_down_window_s: NonNegative | None = None
    """Stabilisation window before prefill engines are taken away, if another."""
    prefill_autoscaler_schedule: str | None = None
    """Prefill engines from given seconds on, if others (scheduled)."""
    prefill_warm_replicas: Annotated[int, Ge(0)] | None = None
    """Started prefill engines kept in reserve, if others."""
    prefill_startup: str | None = None
    """How prefill engines start, if otherwise."""
    local_prefill_below_tokens: Annotated[int, Ge(0)] = 0
    """Shorter prompts are computed where they are decoded (conditional disaggregation)."""
    kv_transfer_fabric: Fabric | None = None
    """What KV caches travel over; by default the fastest that joins both pools."""
    kv_transfer_bandwidth_gb_s: Annotated[float, Gt(0)] | None = None
    """GB/s per GPU and direction; by default the fabric's, as far as it is reached."""
    kv_transfer_latency_ms: Annotated[float, Ge(0)] | None = None
    """Milliseconds before the first byte of a transfer; by default the backend's."""
    kv_transfer_overlap: Overlap | None = None
    """Whether KV leaves prompt by prompt (none), chunk by chunk or layer by layer."""

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole deployment, at most."""
        most = self.max_replicas if self.autoscaler is not None else None
        replicas = (most or self.replicas) + self.warm_replicas
        return replicas * self.gpus_per_replica + self.num_prefill_gpus

    @property
    def is_scaled(self) -> bool:
        """Whether replicas of any pool come and go."""
        if super().is_scaled or not self.prefill_replicas:
            return super().is_scaled
        return self.prefill_autoscaler not in (None, NOBODY) or bool(self.prefill_warm_replicas)

    @property
    def num_prefill_gpus(self) -> int:
        """GPUs of the prefill pool, at most."""
        if not self.prefill_replicas:
            return 0
        stages = (self.prefill_tensor_parallel_size or self.tensor_parallel_size) * (
            self.prefill_pipeline_parallel_size or self.pipeline_parallel_size
        )
        ranks = self.prefill_data_parallel_size or self.data_parallel_size
        return self._most_prefill_replicas * stages * ranks

    @property
    def _most_prefill_replicas(self) -> int:
        most = None
        if (self.prefill_autoscaler or self.autoscaler) not in (None, NOBODY):
            most = self.prefill_max_replicas or self.max_replicas
        warm = self.prefill_warm_replicas
        return (most or self.prefill_replicas) + (self.warm_replicas if warm is None else warm)

    @property
    def decode_pool(self) -> Deployment:
        """The plain fields alone: the pool that decodes, or all there is."""
        return replace(self, **_without_prefill())

    @property
    def prefill_pool(self) -> Deployment | None:
        """The prefill pool as a deployment of its own, which has no drafts to verify."""
        if not self.prefill_replicas:
            return None
        own = {name: getattr(self, _PREFILL + name) for name in OF_PREFILL_POOL}
        changes: dict[str, Any] = {k: v for k, v in own.items() if v is not None}
        changes |= {"replicas": self.prefill_replicas, "speculative_method": None}
        changes |= {"num_speculative_tokens": None, "speculative_model": None}
        changes |= {"speculative_acceptance_rate": None, "speculative_acceptance_rates": None}
        if changes.get("autoscaler") == NOBODY:
            changes |= {"autoscaler": None, "max_replicas": self.prefill_max_replicas}
        if changes.get("startup", self.startup) != self.startup:
            # Options of the other pool's method mean nothing to this one's.
            fields = StartupOptions.__dataclass_fields__
            changes |= {k: v.default for k, v in fields.items() if k.startswith("snapshot_")}
        return replace(self, **_without_prefill(), **changes)

    @property
    def idle_fields(self) -> tuple[str, ...]:
        """The fields of a prefill pool that are set although there is none."""
        if self.prefill_replicas:
            return ()
        return tuple(k for k, v in _without_prefill().items() if getattr(self, k) != v)

    @property
    def idle_scaling_fields(self) -> tuple[str, ...]:
        """The fields of replicas that come and go that are set although none does."""
        if self.is_scaled:
            return ()
        fields = {**StartupOptions.__dataclass_fields__, **ScalingOptions.__dataclass_fields__}
        found = [k for k, v in fields.items() if getattr(self, k) != v.default]
        if self.prefill_replicas:
            own = [_PREFILL + k for k in OF_PREFILL_POOL if k in fields]
            found += [k for k in own if getattr(self, k) is not None]
        return tuple(found)


def _without_prefill() -> dict[str, Any]:
    """Returns the fields of two pools as they are where there is one."""
    fields = Deployment.__dataclass_fields__
    start = list(fields).index("prefill_replicas")
    return {name: fields[name].default for name in list(fields)[start:]}
