"""Rooflines by hand, and how weight formats run on GPUs that lack them."""

from __future__ import annotations

import numpy as np
import pytest

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import Gpu, get_gpu
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.chain import (
    register_source,
    timing_source,
    unregister_source,
)
from dynosim.hardware_models.timing.roofline_source import RooflineSource
from dynosim.hardware_models.timing.shapes import AttentionShape, MoeBlock
from dynosim.hardware_models.timing.source import Chain, OpSource, Priced, TimingSource
from dynosim.hardware_models.timing.tables import MissingTable
from dynosim.hardware_models.timing.weight_format import executed_format, weight_format

H200 = get_gpu("h200_sxm")
A100 = get_gpu("a100_sxm")
BF16 = weight_format("bfloat16")


def one(value: float) -> FloatArray:
    return np.array([value])


def test_a_large_gemm_is_bound_by_arithmetic() -> None:
    seconds = roofline.gemm_s(H200, one(4096), 8192, 8192, BF16)
    assert seconds == pytest.approx(2 * 4096 * 8192 * 8192 / 989e12)


def test_a_small_gemm_is_bound_by_reading_its_weights() -> None:
    seconds = roofline.gemm_s(H200, one(1), 8192, 8192, BF16)
    assert seconds == pytest.approx((2 * 8192 * 8192 + 2 * 8192 + 2 * 8192) / 4.8e12)


def test_four_bit_weights_read_a_quarter_and_compute_in_bfloat16() -> None:
    small = [roofline.gemm_s(H200, one(1), 8192, 8192, weight_format(f)) for f in ("int4", "auto")]
    large = [
        roofline.gemm_s(H200, one(8e4), 8192, 8192, weight_format(f)) for f in ("int4", "auto")
    ]
    assert small[0] / small[1] == pytest.approx(0.26, abs=0.005)
    assert large[0] == large[1]


def test_decode_attention_reads_every_key_and_value_once() -> None:
    shape = AttentionShape(heads=32, kv_heads=8, qk_dim=128, v_dim=128)
    seconds = roofline.decode_attention_s(H200, one(64), one(4096), shape)
    assert seconds == pytest.approx(64 * 4096 * 2 * 8 * 128 * 2 / 4.8e12)


def test_latent_attention_reads_one_latent_per_token_whatever_the_heads() -> None:
    shape = AttentionShape(
        heads=16,
        kv_heads=16,
        qk_dim=192,
        v_dim=128,
        kind="mla",
        latent_dim=576,
        latent_value_dim=512,
    )
    assert shape.kv_bytes_per_token == 576 * 2
    assert shape.decode_flop_per_pair == 2 * 16 * (576 + 512)
    assert shape.prefill_flop_per_pair == 2 * 16 * (192 + 128)


def test_one_token_touches_top_k_experts_and_many_touch_all() -> None:
    block = MoeBlock(hidden_size=4096, inter_size=1536, topk=8, num_experts=128, moe_tp=1, moe_ep=1)
    expert_s = 3 * 4096 * 1536 * 2 / 4.8e12
    one_token, many = roofline.moe_s(H200, np.array([1.0, 100.0]), block, BF16)
    assert one_token == pytest.approx(8 * expert_s, rel=0.01)
    assert many == pytest.approx(128 * expert_s, rel=0.02)


def test_no_routing_beats_the_expert_floor() -> None:
    tokens = np.array([1.0, 10.0, 100.0, 10_000.0])
    for ep in (1, 8):
        block = MoeBlock(
            hidden_size=4096, inter_size=1536, topk=8, num_experts=128, moe_tp=1, moe_ep=ep
        )
        floor = roofline.moe_floor_s(H200, tokens, block, BF16)
        assert (floor <= roofline.moe_s(H200, tokens, block, BF16) * (1 + 1e-12)).all()


def test_a_ring_moves_twice_the_message_but_its_own_share() -> None:
    seconds = roofline.all_reduce_s(H200, one(64e6), 8)
    assert seconds == pytest.approx(2 * 7 / 8 * 64e6 / 450e9)


def test_groups_beyond_a_node_go_over_its_network() -> None:
    assert roofline.link_bytes_s(H200, 8) == H200.nvlink_bandwidth_bytes_s
    assert roofline.link_bytes_s(H200, 16) == H200.internode_bandwidth_bytes_s


def test_fp8_on_ampere_saves_bytes_but_not_arithmetic() -> None:
    form = executed_format("fp8", A100)
    assert (form.weight_bytes, form.activation_bytes, form.compute) == (1.0, 2.0, "bfloat16")
    assert executed_format("fp8", H200).compute == "fp8"


def test_mxfp4_computes_in_eight_bits_on_blackwell_only() -> None:
    assert executed_format("mxfp4", H200).name == "w4a16_mxfp4"
    assert executed_format("mxfp4", get_gpu("b200_sxm")).name == "w4a8_mxfp4_mxfp8"


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(UserError, match="fp8_block"):
        weight_format("fp8_blok")


class TestNothingMeasured:
    source = RooflineSource(H200, Chain(()))

    def test_a_gemm_takes_its_roofline_over_the_usual_share(self) -> None:
        priced = self.source.gemm_s(one(4096), 8192, 8192, "bfloat16")
        assert priced.source.source == "roofline"
        assert priced.value == pytest.approx(2 * 4096 * 8192**2 / 989e12 / 0.72)

    def test_attention_grows_with_context_and_stops_at_its_window(self) -> None:
        shape = AttentionShape(heads=32, kv_heads=8, qk_dim=128, v_dim=128, window=1024)
        grid = self.source.decode_attention(shape).value
        assert grid.at(8, 512) < grid.at(8, 1024) == grid.at(8, 100_000)
        curve = self.source.prefill_attention(shape).value
        assert curve.seconds(4096, 0) < curve.seconds(8192, 0)

    def test_an_all_reduce_rides_the_link(self) -> None:
        priced = self.source.all_reduce_s(one(450e6), 2)
        assert priced.value == pytest.approx(1e-3 / 0.75 + 10e-6)


def test_a_registered_source_answers_first_and_only_where_it_can() -> None:
    calm = Priced(one(1.0), OpSource("gemm", "measured", "mine"))

    class Mine(RooflineSource):
        def gemm_s(self, m: FloatArray, n: int, k: int, dtype: str) -> Priced[FloatArray]:
            if dtype != "bfloat16":
                raise MissingTable("mine has bfloat16 only")
            return calm

    def make(gpu: Gpu, backend: str) -> TimingSource | None:
        return Mine(gpu, Chain(())) if gpu == H200 else None

    register_source(make)
    try:
        assert timing_source(H200, "vllm").gemm_s(one(1), 8, 8, "bfloat16") is calm
        assert timing_source(H200, "vllm").gemm_s(one(1), 8, 8, "fp8") is not calm
        assert timing_source(A100, "vllm").gemm_s(one(1), 8, 8, "bfloat16") is not calm
    finally:
        unregister_source(make)
    assert timing_source(H200, "vllm").gemm_s(one(1), 8, 8, "bfloat16") is not calm
