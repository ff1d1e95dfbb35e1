"""How many bytes a prompt's KV cache is, and what it may travel over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.kv_transfer import (
    KvBytes,
    kv_bytes,
    kv_transfer,
    kv_transfer_rules,
    kv_transfer_sources,
)
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing import roofline

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def engine(model: str = LLAMA, gpu: str = "h100_sxm", tp: int = 1, **more: Any) -> ResolvedEngine:
    return resolve_engine(EngineArgs(model=model, gpu=gpu, tensor_parallel_size=tp, **more))


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_grouped_queries_are_cut_over_gpus(tp: int):
    # 32 layers, keys and values of 8 heads of 128 in 2 bytes, whoever holds them.
    assert kv_bytes(engine(tp=tp)) == KvBytes(per_token=32 * 2 * 8 * 128 * 2)


def test_heads_that_ranks_copy_are_sent_to_each():
    own = kv_bytes(engine(tp=8)).per_token
    assert kv_bytes(engine(tp=16, tensor_parallel_across_nodes=True)).per_token == 2 * own


def test_fp8_halves_it():
    half = kv_bytes(engine(kv_cache_dtype="fp8")).per_token
    assert half == kv_bytes(engine()).per_token / 2


@pytest.mark.parametrize("tp", [8, 4])
def test_latents_are_sent_to_every_rank(tp: int):
    # 61 layers of 512 + 64 elements in 2 bytes.
    size = kv_bytes(engine("deepseek-ai/DeepSeek-V3", "b200_sxm", tp))
    assert size.per_token == tp * 61 * 576 * 2


def test_of_a_sliding_window_no_more_than_the_window_is_sent():
    # Gemma 3 27B: 10 of 62 layers see everything, the others 1,024 tokens; 16 heads of 128.
    size = kv_bytes(engine("google/gemma-3-27b-it"))
    layer = 2 * 16 * 128 * 2
    assert size == KvBytes(per_token=10 * layer, windows=((52 * layer, 1024),))
    assert size.of(1000) == 62 * 1000 * layer
    assert size.of(5000) == (10 * 5000 + 52 * 1024) * layer


def test_states_of_hybrid_models_do_not_grow():
    size = kv_bytes(engine("Qwen/Qwen3-Next-80B-A3B-Instruct", tp=2))
    assert size.state > 0
    # 12 of 48 layers attend: 2 heads of 256.
    assert size.per_token == 12 * 2 * 2 * 256 * 2


def test_ports_are_all_gpus_of_an_engine():
    share = kv_transfer_rules("vllm").line_rate_share
    transfer = kv_transfer(engine(tp=2), engine(tp=4), num_gpus=64)
    assert transfer.fabric == "network"
    assert transfer.egress_bytes_s == pytest.approx(2 * 50e9 * share)
    assert transfer.ingress_bytes_s == pytest.approx(4 * 50e9 * share)
    asked = kv_transfer(engine(tp=2), engine(tp=4), num_gpus=64, bandwidth_gb_s=10.0)
    assert (asked.egress_bytes_s, asked.ingress_bytes_s) == (20e9, 40e9)


@pytest.mark.parametrize(
    ("prefill", "decode", "num_gpus", "fabric"),
    [
        ("h100_sxm", "h100_sxm", 8, "nvlink"),
        ("h100_sxm", "h100_sxm", 9, "network"),
        ("h100_sxm", "h200_sxm", 2, "network"),
        ("l40s", "l40s", 8, "pcie"),
        ("gb200", "gb200", 72, "nvlink"),
        ("gb200", "gb200", 73, "network"),
        ("h100_nvl", "h100_nvl", 2, "nvlink"),
        ("h100_nvl", "h100_nvl", 4, "pcie"),
    ],
)
def test_the_fastest_fabric_that_joins_both(prefill: str, decode: str, num_gpus: int, fabric: str):
    assert kv_transfer(engine(gpu=prefill), engine(gpu=decode), num_gpus=num_gpus).fabric == fabric


@pytest.mark.parametrize(
    ("gpu", "options", "where"),
    [
        ("l40s", {"fabric": "nvlink"}, "kv_transfer_fabric"),
        ("h100_sxm", {"fabric": "nvlink", "num_gpus": 16}, "kv_transfer_fabric"),
        ("h100_sxm", {"fabric": "pcie", "num_gpus": 16}, "kv_transfer_fabric"),
        ("h100_sxm", {"bandwidth_gb_s": -1.0}, "kv_transfer_bandwidth_gb_s"),
        ("h100_sxm", {"bandwidth_gb_s": float("nan")}, "kv_transfer_bandwidth_gb_s"),
        ("h100_sxm", {"latency_ms": -1.0}, "kv_transfer_latency_ms"),
    ],
)
def test_links_to_nowhere_are_refused(gpu: str, options: dict[str, Any], where: str):
    with pytest.raises(UserError) as refused:
        kv_transfer(engine(gpu=gpu), engine(gpu=gpu), **({"num_gpus": 2} | options))
    assert refused.value.where == where


def test_other_gpus_do_not_share_a_node():
    with pytest.raises(UserError, match="do not share a node"):
        kv_transfer(engine(), engine(gpu="h200_sxm"), num_gpus=2, fabric="nvlink")


def test_who_cannot_hand_over():
    static = engine(backend="static")
    with pytest.raises(UserError, match="prefill_replicas"):
        kv_transfer(static, static, num_gpus=2)


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_every_rule_has_a_source(backend: str):
    assert set(kv_transfer_sources(backend)) == set(vars(kv_transfer_rules(backend)))


# --- nodes ------------------------------------------------------------------------------------


def test_a_group_larger_than_a_node_is_refused_unless_asked_for():
    plan = plan_memory(engine(tp=16))
    assert not plan.feasible
    assert "tensor_parallel_across_nodes" in plan.reason
    assert plan_memory(engine(tp=16, tensor_parallel_across_nodes=True)).feasible
    assert plan_memory(engine(gpu="gb200", tp=16)).feasible


@pytest.mark.parametrize("megabytes", [0.01, 1.0, 100.0])
def test_an_all_reduce_between_nodes_takes_longer_than_inside(megabytes: float):
    h100 = get_gpu("h100_sxm")
    message = np.array([megabytes * 1e6])

    def seconds(num_gpus: int) -> float:
        ring = float(roofline.all_reduce_s(h100, message, num_gpus)[0])
        return ring + roofline.network_latency_s(h100, num_gpus)

    assert seconds(8) < seconds(16) < seconds(64)


def test_rings_leave_a_node_by_all_of_its_network_interfaces():
    h100 = get_gpu("h100_sxm")
    assert roofline.ring_bytes_s(h100, 8) == 450e9
    assert roofline.ring_bytes_s(h100, 16) == 8 * 50e9
    assert roofline.ring_bytes_s(get_gpu("l40s"), 8) == get_gpu("l40s").pcie_bandwidth_bytes_s
    assert roofline.ring_bytes_s(get_gpu("gb200"), 64) == 900e9
