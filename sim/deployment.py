"""A deployment: engines, how many replicas of them, and how requests reach them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from dynosim.hardware_models.engine_args import EngineArgs, Positive
from dynosim.hardware_models.kv_tiers import KvTierOptions
from dynosim.hardware_models.kv_transfer import Fabric, Overlap
from dynosim.hardware_models.startup.options import StartupOptions
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.scaling.options import ScalingOptions

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
)
"""What a prefill pool may have of its own, under the same name with ``prefill_`` before it."""


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
    def num_prefill_gpus(self) -> int:
        """GPUs of the prefill pool."""
        stages = (self.prefill_tensor_parallel_size or self.tensor_parallel_size) * (
            self.prefill_pipeline_parallel_size or self.pipeline_parallel_size
        )
        ranks = self.prefill_data_parallel_size or self.data_parallel_size
        return self.prefill_replicas * stages * ranks

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
        return tuple(k for k, v in fields.items() if getattr(self, k) != v.default)


def _without_prefill() -> dict[str, Any]:
    """Returns the fields of two pools as they are where there is one."""
    fields = Deployment.__dataclass_fields__
    start = list(fields).index("prefill_replicas")
    return {name: fields[name].default for name in list(fields)[start:]}
