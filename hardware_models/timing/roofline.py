"""What no kernel can beat: the larger of compute time at peak rate and memory time."""

from __future__ import annotations

import math

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.timing.shapes import AttentionShape, MoeBlock
from dynosim.hardware_models.timing.weight_format import WeightFormat

ELEMENTWISE_BANDWIDTH_SHARE = 0.8
ELEMENTWISE_LAUNCH_S = 3e-6
"""Kernels without a table (norm, activation, rotary, embedding) move their bytes at 0.8 of HBM
bandwidth after 3 us: the constants that aiconfigurator-core 0.12.0 uses for them."""

POINT_TO_POINT_S = 10e-6
"""Latency of handing activations to the next pipeline stage (same source)."""

NETWORK_HOP_S = 5e-6
"""Latency of a tree's hop between nodes for small messages: NCCL's own model of itself (hwLat of
NET, tree, LL in src/graph/tuning.cc, https://github.com/NVIDIA/nccl, v2.21, 2024-04-02)."""


def peak_flop_s(gpu: Gpu, dtype: str) -> float:
    """Returns the peak rate of ``dtype``, or the 16-bit one where the GPU lacks it."""
    peaks = dict(gpu.peak_flop_s)
    return next(peaks[d] for d in (dtype, "bfloat16", "float16") if d in peaks)


Roofs = tuple[FloatArray, FloatArray]
"""Seconds of arithmetic at peak rate, and of memory traffic at full bandwidth."""


def gemm_s(gpu: Gpu, m: FloatArray, n: float, k: float, form: WeightFormat) -> FloatArray:
    """Returns seconds of (m x k) times (k x n), the larger of :func:`gemm_roofs`."""
    return np.maximum(*gemm_roofs(gpu, m, n, k, form))


def gemm_roofs(gpu: Gpu, m: FloatArray, n: float, k: float, form: WeightFormat) -> Roofs:
    """Returns both roofs: weights and activations are read, the output written."""
    compute = 2.0 * m * n * k / peak_flop_s(gpu, form.compute)
    traffic = form.weight_bytes * n * k + m * (form.activation_bytes * k + 2.0 * n)
    return compute, traffic / gpu.hbm_bandwidth_bytes_s


def moe_s(gpu: Gpu, tokens: FloatArray, block: MoeBlock, form: WeightFormat) -> FloatArray:
    """Returns seconds of the routed experts of one layer on one GPU, routing uniform."""
    return np.maximum(*moe_roofs(gpu, tokens, block, form))


def moe_roofs(gpu: Gpu, tokens: FloatArray, block: MoeBlock, form: WeightFormat) -> Roofs:
    """Returns both roofs of :func:`moe_s`.

    Reads the experts that ``tokens`` x top-k uniform draws are expected to touch.
    """
    missed = np.power(1.0 - block.topk / block.num_experts, tokens)
    return _moe_roofs(gpu, tokens, block, form, block.num_experts * (1.0 - missed))


def moe_floor_s(gpu: Gpu, tokens: FloatArray, block: MoeBlock, form: WeightFormat) -> FloatArray:
    """Returns seconds that no routing can beat: skew may send every token to the same experts."""
    return np.maximum(*_moe_roofs(gpu, tokens, block, form, np.full_like(tokens, block.topk)))


def _moe_roofs(
    gpu: Gpu, tokens: FloatArray, block: MoeBlock, form: WeightFormat, touched: FloatArray
) -> Roofs:
    matrices = 3.0 if block.gated else 2.0
    shard = matrices * block.hidden_size * block.inter_size / block.moe_tp
    assigned = tokens * block.topk / block.moe_ep
    compute = 2.0 * assigned * shard / peak_flop_s(gpu, form.compute)
    traffic = touched / block.moe_ep * shard * form.weight_bytes
    traffic = traffic + tokens / block.moe_ep * block.hidden_size * (form.activation_bytes + 2.0)
    return compute, traffic / gpu.hbm_bandwidth_bytes_s


def decode_attention_s(
    gpu: Gpu, sequences: FloatArray, context: FloatArray, shape: AttentionShape
) -> FloatArray:
    """Returns seconds of one layer's attention for one new token per sequence.

    ``context`` is tokens per sequence; the KV read is the traffic.
    """
    total = sequences * context
    compute = total * shape.decode_flop_per_pair / peak_flop_s(gpu, shape.compute)
    traffic = total * shape.kv_bytes_per_token / gpu.hbm_bandwidth_bytes_s
    return np.maximum(compute, traffic)


def prefill_s_per_pair(gpu: Gpu, shape: AttentionShape) -> float:
    """Returns roofline seconds per (query, key) pair of prefill attention."""
    return shape.prefill_flop_per_pair / peak_flop_s(gpu, shape.compute)


def all_reduce_s(gpu: Gpu, message_bytes: FloatArray, num_gpus: int) -> FloatArray:
    """Returns seconds of a ring all-reduce: each GPU moves 2 (N-1)/N of the message."""
    return 2.0 * (num_gpus - 1) / num_gpus * message_bytes / ring_bytes_s(gpu, num_gpus)


def ring_bytes_s(gpu: Gpu, num_gpus: int) -> float:
    """Returns the bandwidth of a ring of GPUs, per GPU and direction: its narrowest place's.

    Between nodes, rings leave by the network interfaces of all GPUs that a node has in the group.
    """
    if num_gpus <= gpu.near_gpus:
        return link_bytes_s(gpu, num_gpus)
    own = num_gpus // -(-num_gpus // gpu.gpus_per_node)
    network = own * gpu.internode_bandwidth_bytes_s
    return min(network, link_bytes_s(gpu, own)) if own > 1 else network


def link_bytes_s(gpu: Gpu, num_gpus: int) -> float:
    """Returns the slowest link's bandwidth per GPU and direction in a group of GPUs."""
    if gpu.nvlink_bandwidth_bytes_s is not None and gpu.joins_by_nvlink(num_gpus):
        return gpu.nvlink_bandwidth_bytes_s
    if num_gpus > gpu.gpus_per_node:
        return gpu.internode_bandwidth_bytes_s
    return gpu.pcie_bandwidth_bytes_s


def network_latency_s(gpu: Gpu, num_gpus: int) -> float:
    """Returns what an all-reduce takes longer where its group spans nodes: up a tree and down."""
    if num_gpus <= gpu.near_gpus:
        return 0.0
    return 2.0 * math.ceil(math.log2(num_gpus / gpu.gpus_per_node)) * NETWORK_HOP_S


def elementwise_s(gpu: Gpu, moved_bytes: FloatArray) -> FloatArray:
    """Returns seconds of one memory-bound kernel that moves these bytes."""
    rate = ELEMENTWISE_BANDWIDTH_SHARE * gpu.hbm_bandwidth_bytes_s
    return ELEMENTWISE_LAUNCH_S + moved_bytes / rate
