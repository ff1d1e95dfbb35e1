"""What weight and cache formats do to a step: who gains, where, and where it turns."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from dynosim.hardware_models.calibration import unpacking as calibration
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.hardware_models.timing.unpacking import unpacked_gemm_s, unpacking
from dynosim.hardware_models.timing.weight_format import executed_format, weight_format

PLAIN = "meta-llama/Llama-3.1-8B-Instruct"
AWQ = "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4"
GPTQ = "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16"
INT8 = "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8"
FP8 = "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8"
NVFP4 = "nvidia/Llama-3.1-8B-Instruct-NVFP4"

GPUS = ["a100_sxm", "h100_sxm", "h200_sxm", "l40s", "rtx_4090", "rtx_pro_6000_server", "b200_sxm"]


@cache
def engine(model: str, gpu: str, **args: Any) -> ResolvedEngine:
    fixed = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024, "kv_cache_dtype": "bfloat16"}
    return resolve_engine(EngineArgs(model=model, gpu=gpu, **fixed | args))


@cache
def timer(model: str, gpu: str, **args: Any) -> StepTimer:
    return StepTimer.compile(engine(model, gpu, **args))


def decode_ratio(model: str, gpu: str, n: int, mean: int = 500) -> float:
    packed, plain = (timer(m, gpu).step_s(n, n, 0.0, n, n * mean) for m in (model, PLAIN))
    return packed / plain


def prefill_s(t: StepTimer, tokens: int) -> float:
    return t.step_s(tokens, 1, t.prefill_attention_s(tokens, 0), 0, 0)


def prefill_ratio(model: str, gpu: str, tokens: int) -> float:
    return prefill_s(timer(model, gpu), tokens) / prefill_s(timer(PLAIN, gpu), tokens)


class TestFourBitWeights:
    """AutoAWQ 106, vllm 2268, 172, 2279: faster at small batch, slower at large and in prefill."""

    @pytest.mark.parametrize("gpu", GPUS)
    @pytest.mark.parametrize("model", [AWQ, GPTQ])
    def test_faster_at_small_batch(self, model: str, gpu: str) -> None:
        assert decode_ratio(model, gpu, 1) < 0.65
        assert decode_ratio(model, gpu, 16) < 0.75

    @pytest.mark.parametrize("gpu", GPUS)
    def test_slower_in_prefill(self, gpu: str) -> None:
        assert all(1.0 < prefill_ratio(AWQ, gpu, tokens) < 1.6 for tokens in (2048, 4096, 8192))

    @pytest.mark.parametrize("gpu", ["a100_sxm", "h100_sxm", "h200_sxm", "rtx_4090", "b200_sxm"])
    def test_the_gain_is_gone_between_32_and_256_sequences(self, gpu: str) -> None:
        sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
        gains = [decode_ratio(AWQ, gpu, n, mean=1) for n in sizes]
        turn = next(n for n, gain in zip(sizes, gains, strict=True) if gain >= 0.99)
        assert 32 <= turn <= 256

    @pytest.mark.parametrize("gpu", ["l40s", "rtx_pro_6000_server"])
    def test_little_bandwidth_for_its_arithmetic_puts_it_off(self, gpu: str) -> None:
        assert decode_ratio(AWQ, gpu, 128, mean=1) < 0.9
        assert decode_ratio(AWQ, gpu, 768, mean=1) > 0.99

    def test_four_bit_floats_are_weight_only_before_blackwell(self) -> None:
        assert prefill_ratio(NVFP4, "h100_sxm", 4096) > 1.0
        assert prefill_ratio(NVFP4, "b200_sxm", 4096) < 0.7
        assert decode_ratio(NVFP4, "h100_sxm", 1) < 0.65


class TestEightBitWeights:
    @pytest.mark.parametrize("gpu", GPUS)
    def test_int8_with_int8_activations_gains_everywhere(self, gpu: str) -> None:
        assert decode_ratio(INT8, gpu, 1) < 0.8
        assert decode_ratio(INT8, gpu, 256) < 0.9
        assert prefill_ratio(INT8, gpu, 4096) < 0.8

    @pytest.mark.parametrize("gpu", ["h100_sxm", "h200_sxm", "l40s", "rtx_pro_6000_server"])
    def test_fp8_gains_everywhere_where_tensor_cores_have_it(self, gpu: str) -> None:
        assert decode_ratio(FP8, gpu, 1) < 0.85
        assert prefill_ratio(FP8, gpu, 4096) < 0.85

    @pytest.mark.parametrize("gpu", ["a100_sxm", "a10"])
    def test_fp8_is_weight_only_on_ampere(self, gpu: str) -> None:
        assert decode_ratio(FP8, gpu, 1) < 0.75
        assert 0.99 < prefill_ratio(FP8, gpu, 4096) < 1.1


class TestEightBitCache:
    """vllm 48786, 42058, flashinfer 3484: capacity doubles, prefill 2.5-5 % and decode 0.4-5.5 %
    slower: it pays where the cache binds, by memory or by its reading."""

    def test_capacity_doubles(self) -> None:
        plain, packed = (
            plan_memory(engine(PLAIN, "h100_sxm", kv_cache_dtype=d)) for d in ("bfloat16", "fp8")
        )
        assert packed.kv_cache_tokens == pytest.approx(2 * plain.kv_cache_tokens, rel=0.01)

    @pytest.mark.parametrize("gpu", ["h100_sxm", "h200_sxm"])
    def test_by_itself_it_makes_nothing_faster(self, gpu: str) -> None:
        plain, packed = timer(PLAIN, gpu), timer(PLAIN, gpu, kv_cache_dtype="fp8")
        for tokens in (512, 2048, 8192):
            assert 1.0 < prefill_s(packed, tokens) / prefill_s(plain, tokens) < 1.05
        for n in (1, 4, 8):
            step = (n, n, 0.0, n, n * 500)
            assert 1.0 < packed.step_s(*step) / plain.step_s(*step) < 1.055

    def test_reading_long_contexts_of_many_sequences_is_what_it_saves(self) -> None:
        plain, packed = timer(PLAIN, "h200_sxm"), timer(PLAIN, "h200_sxm", kv_cache_dtype="fp8")
        step = (64, 64, 0.0, 64, 64 * 4000)
        assert packed.step_s(*step) < 0.9 * plain.step_s(*step)


class TestUnpacking:
    def test_the_shipped_figures_are_those_of_the_tables(self) -> None:
        shipped = unpacking()
        for dtype in ("int4_wo", "int8_wo"):
            assert shipped.penalties[dtype] == pytest.approx(calibration.penalties(dtype), rel=1e-3)
        losses = [loss for _, loss in calibration.hopper_losses()]
        assert shipped.asynchronous_loss == pytest.approx(np.sqrt(np.prod(losses)), rel=1e-3)

    def test_never_below_the_roofline_and_never_twice_it(self) -> None:
        m = 2.0 ** np.arange(0, 15)
        for key in GPUS:
            gpu = get_gpu(key)
            for dtype in ("int4_wo", "int8_wo"):
                form = weight_format(dtype)
                over = unpacked_gemm_s(gpu, m, 8192, 8192, form)
                over = over / roofline.gemm_s(gpu, m, 8192, 8192, form)
                assert (over >= 1.0).all()
                assert (over < 2.5).all()

    def test_a_gpu_with_tensor_cores_for_the_format_does_not_unpack(self) -> None:
        assert executed_format("fp8", get_gpu("a100_sxm")).unpacks
        assert not executed_format("fp8", get_gpu("l40s")).unpacks
        assert not executed_format("bfloat16", get_gpu("a100_sxm")).unpacks

    def test_kernels_of_another_kind_do_not_stand_in(self) -> None:
        # L40S multiplies fp8 weights as they are, A10 unpacks them: nothing measured to carry over.
        (source,) = (s for s in timer(FP8, "a10").sources if s.name == "gemm fp8")
        assert source.source == "roofline"
        assert "loss of unpacking" in source.detail


class TestInt8Cache:
    def test_decode_reads_as_fp8_and_prefill_computes_in_16_bits(self) -> None:
        plain, fp8, int8 = (
            timer(PLAIN, "h100_sxm", kv_cache_dtype=d) for d in ("bfloat16", "fp8", "int8")
        )
        decode = [t.step_s(64, 64, 0.0, 64, 64 * 8000) for t in (plain, fp8, int8)]
        assert decode[2] == pytest.approx(decode[1])
        assert decode[2] < decode[0]
        prompt = [t.prefill_attention_s(4096, 0) for t in (plain, fp8, int8)]
        assert prompt[2] == pytest.approx(prompt[0])

    def test_the_source_says_that_none_was_measured(self) -> None:
        sources = timer(PLAIN, "h100_sxm", kv_cache_dtype="int8").sources
        named = {s.name: s for s in sources if s.name.endswith("attention")}
        assert {named[f"{p} attention"].source for p in ("prefill", "decode")} == {"transferred"}
        assert "fp8 cache in place of int8" in named["decode attention"].detail
        assert "16-bit cache in place of int8" in named["prefill attention"].detail
