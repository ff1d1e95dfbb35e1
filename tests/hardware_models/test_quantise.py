"""Who quantises the input of a GEMM, and what of the tables' rows is taken off for it."""

from __future__ import annotations

import numpy as np
import pytest

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.timing.chain import timing_source
from dynosim.hardware_models.timing.ops import Gemm, decompose

STATIC = "nvidia/Llama-3.1-70B-Instruct-FP8"
DYNAMIC = "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic"
PLAIN = "meta-llama/Llama-3.1-8B-Instruct"
M = np.array([1.0, 16.0, 64.0])


def formats(model: str, backend: str, **args: object) -> dict[str, str]:
    engine = resolve_engine(EngineArgs(model=model, gpu="H200", backend=backend, **args))  # type: ignore[arg-type]
    return {op.name: op.dtype for op in decompose(engine).tokens if isinstance(op, Gemm)}


def test_tensorrt_llm_casts_in_the_kernel_before_where_the_checkpoint_has_the_scales() -> None:
    fused = dict.fromkeys(("qkv", "o", "mlp up", "mlp down"), "fp8_fused")
    assert formats(STATIC, "trtllm") == fused
    assert set(formats(DYNAMIC, "trtllm").values()) == {"fp8"}
    # Quantised by TensorRT-LLM itself: calibrated.
    assert formats(PLAIN, "trtllm", quantization="fp8") == fused


def test_vllm_fuses_all_but_attentions() -> None:
    found = formats(STATIC, "vllm")
    assert (found["qkv"], found["mlp up"], found["mlp down"]) == ("fp8_fused",) * 3
    assert found["o"] == "fp8_static"
    assert formats(DYNAMIC, "vllm")["o"] == "fp8"


def test_sglang_quantises_in_kernels_of_its_own() -> None:
    assert set(formats(STATIC, "sglang").values()) == {"fp8_static"}


def test_what_is_not_quantised_or_by_blocks_stays_as_measured() -> None:
    assert set(formats(PLAIN, "trtllm").values()) == {"bfloat16"}
    assert set(formats("Qwen/Qwen3-8B-FP8", "vllm").values()) == {"fp8_block"}


@pytest.mark.parametrize("gpu", ["h200_sxm", "b200_sxm", "l40s"])
def test_a_static_scale_saves_finding_it_and_fusion_the_cast(gpu: str) -> None:
    source = timing_source(get_gpu(gpu), "trtllm")
    full, static, fused = (
        source.gemm_s(M, 8192, 8192, dtype).value for dtype in ("fp8", "fp8_static", "fp8_fused")
    )
    # 6 to 10 us for the scale, 1.3 to 3 us for the cast, on all three.
    assert ((full - static > 5e-6) & (full - static < 12e-6)).all()
    assert ((static - fused > 1e-6) & (static - fused < 4e-6)).all()


def test_vllm_pays_for_scales_that_its_table_does_not_have() -> None:
    source = timing_source(get_gpu("h200_sxm"), "vllm")
    full, static = (source.gemm_s(M, 8192, 8192, d).value for d in ("fp8", "fp8_static"))
    assert ((full - static > 0) & (full - static < 2e-6)).all()


def test_fused_products_are_never_below_the_roofline_nor_16_bit_ones_changed() -> None:
    gpu = get_gpu("b200_sxm")
    source = timing_source(gpu, "trtllm")
    tokens = np.array([1.0, 64.0, 1024.0, 16384.0])
    for n, k in ((128, 128), (1024, 8192), (65536, 65536)):
        fused = source.gemm_s(tokens, n, k, "nvfp4_fused").value
        assert (fused > 0).all()
        assert (fused <= source.gemm_s(tokens, n, k, "nvfp4").value).all()
