"""The layers that a deployment is tuned in, and which of its fields lie in which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dynosim.sim.deployment import Deployment

FIELDS: Mapping[str, tuple[str, ...]] = {
    "infrastructure": (
        "gpu",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "enable_expert_parallel",
        "all2all_backend",
        "replicas",
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
        "router",
    ),
    "client and front-end": ("api_server_count",),
}
"""Layer -> fields, from the hardware up; the default order of an ablation."""


def changes(baseline: Deployment, tuned: Deployment) -> dict[str, dict[str, Any]]:
    """Returns layer -> {field: tuned value} of the layers in which the two differ."""
    found: dict[str, dict[str, Any]] = {}
    for layer, fields in FIELDS.items():
        changed = {
            name: getattr(tuned, name)
            for name in fields
            if getattr(tuned, name) != getattr(baseline, name)
        }
        if changed:
            found[layer] = changed
    return found


def with_changes(baseline: Deployment, *changed: Mapping[str, Any]) -> Deployment:
    """Returns the baseline with the fields of some layers as tuned."""
    together = {name: value for fields in changed for name, value in fields.items()}
    return replace(baseline, **together)
