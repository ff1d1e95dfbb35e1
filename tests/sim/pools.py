"""Two pools with a simple timer and a simple wire, for tests of disaggregation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from affine_timer import AffineTimer
from dynosim.hardware_models.kv_transfer import FirstToken, KvBytes, KvTransfer, Overlap
from dynosim.sim.cluster.cluster import ClusterSpec, PrefillSpec
from dynosim.sim.engine.limits import EngineLimits

FIRST_TOKENS: dict[str, FirstToken] = {
    "vllm": "recomputed",
    "sglang": "handed_over",
    "trtllm": "handed_over",
}


def wire(
    first_token: FirstToken = "recomputed",
    overlap: Overlap = "none",
    bytes_s: float = 1e6,
    latency_s: float = 0.0,
    per_token: int = 1000,
    **changes: Any,
) -> KvTransfer:
    """Returns a transfer whose ports are equally wide: 1 ms a token by default."""
    size = KvBytes(per_token=per_token)
    return replace(
        KvTransfer(
            fabric="network",
            size=size,
            egress_bytes_s=bytes_s,
            ingress_bytes_s=bytes_s,
            latency_s=latency_s,
            overlap=overlap,
            first_token=first_token,
            layers=4,
        ),
        **changes,
    )


def pools(
    scheduler: str = "vllm",
    transfer: KvTransfer | None = None,
    *,
    prefill: int = 1,
    decode: int = 1,
    num_blocks: int = 64,
    prefill_blocks: int | None = None,
    max_num_seqs: int = 8,
    budget: int = 512,
    caching: bool = False,
    local_below_tokens: int = 0,
    timer: AffineTimer | None = None,
    policy: str | None = None,
    async_scheduling: bool = False,
    **cluster: Any,
) -> ClusterSpec:
    """Returns ``prefill`` and ``decode`` replicas of one kind."""
    policies = {"trtllm": "guaranteed_no_evict"}
    limits = EngineLimits(
        scheduler=scheduler,
        scheduling_policy=policy or policies.get(scheduler, "fcfs"),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        async_scheduling=async_scheduling,
    )
    common: dict[str, Any] = {"timer": timer or AffineTimer(), "max_model_len": 100_000}
    pool = ClusterSpec(
        limits=limits, num_blocks=prefill_blocks or num_blocks, replicas=prefill, **common
    )
    split = PrefillSpec(
        pool=pool,
        transfer=transfer or wire(FIRST_TOKENS[scheduler]),
        local_below_tokens=local_below_tokens,
    )
    return ClusterSpec(
        limits=limits, num_blocks=num_blocks, replicas=decode, prefill=split, **common, **cluster
    )
