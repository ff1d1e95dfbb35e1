"""The layers that a deployment is tuned in, and which of its fields lie in which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from dynosim.hardware_models.kv_tiers import KvTierOptions
from dynosim.hardware_models.startup.options import StartupOptions
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.deployment import OF_PREFILL_POOL, Deployment


def _own(options: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(options))


def _of_prefill(options: type[Any]) -> tuple[str, ...]:
    return tuple(f"prefill_{name}" for name in _own(options) if name in OF_PREFILL_POOL)


FIELDS: Mapping[str, tuple[str, ...]] = {
    "infrastructure": (
        "gpu",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "enable_expert_parallel",
        "all2all_backend",
        "tensor_parallel_across_nodes",
        "replicas",
        "prefill_replicas",
        "prefill_gpu",
        "prefill_tensor_parallel_size",
        "prefill_pipeline_parallel_size",
        "prefill_data_parallel_size",
        "prefill_enable_expert_parallel",
        "kv_transfer_fabric",
        "kv_transfer_bandwidth_gb_s",
        "kv_transfer_latency_ms",
        *_own(StartupOptions),
        *_own(ScalingOptions),
        *_of_prefill(StartupOptions),
        *_of_prefill(ScalingOptions),
    ),
    "model and precision": ("model", "quantization", "kv_cache_dtype", "expert_distribution"),
    "runtime and kernels": (
        "backend",
        "backend_version",
        "kernel_tables",
        "calibration",
        "sampling",
        "enforce_eager",
        "cuda_graph_padding",
        "async_scheduling",
        "moe_backend",
        "kv_transfer_overlap",
        "speculative_method",
        "num_speculative_tokens",
        "speculative_model",
        "speculative_acceptance_rate",
        "speculative_acceptance_rates",
    ),
    "serving": (
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "gpu_memory_utilization",
        "num_gpu_blocks_override",
        "kv_cache_memory_bytes",
        "block_size",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "enable_mixed_chunk",
        "schedule_conservativeness",
        "scheduling_policy",
        "long_prefill_token_threshold",
        "load_balance_method",
        "scheduler_recv_interval",
        "batch_wait_timeout_iters",
        "batch_wait_max_tokens_ratio",
        "attention_dp_enable_balance",
        "attention_dp_timeout_iters",
        "attention_dp_batching_wait_iters",
        "prefill_max_num_seqs",
        "prefill_max_num_batched_tokens",
        "prefill_gpu_memory_utilization",
        "local_prefill_below_tokens",
        *_own(KvTierOptions),
        *_of_prefill(KvTierOptions),
    ),
    "client and edge": (
        "api_server_count",
        "stream_interval",
        "prefill_router",
        *_own(RouterOptions),
    ),
}
"""Layer -> fields, from the hardware up; the default order of an ablation."""


def changes(baseline: Deployment, tuned: Deployment) -> dict[str, dict[str, Any]]:
    """Returns layer -> {field: tuned value} of the layers in which the two differ."""
    found: dict[str, dict[str, Any]] = {}
    for layer, named in FIELDS.items():
        changed = {
            name: getattr(tuned, name)
            for name in named
            if getattr(tuned, name) != getattr(baseline, name)
        }
        if changed:
            found[layer] = changed
    return found


def with_changes(baseline: Deployment, *changed: Mapping[str, Any]) -> Deployment:
    """Returns the baseline with the fields of some layers as tuned."""
    together = {name: value for layer in changed for name, value in layer.items()}
    return replace(baseline, **together)
