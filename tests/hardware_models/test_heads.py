"""Attention of a head count that was not measured: KV heads are work like sequences are."""

from __future__ import annotations

import numpy as np
import pytest

from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.timing import chain
from dynosim.hardware_models.timing.chain import timing_source
from dynosim.hardware_models.timing.shapes import AttentionShape, MoeBlock
from dynosim.hardware_models.timing.tables import load_table

H100 = get_gpu("h100_sxm")


def shape(kv_heads: int, heads: int) -> AttentionShape:
    return AttentionShape(heads=heads, kv_heads=kv_heads, qk_dim=128, v_dim=128)


@pytest.mark.parametrize(("sequences", "context"), [(8, 512), (32, 1024), (64, 4096)])
def test_four_times_the_heads_decode_like_four_times_the_sequences(
    sequences: int, context: int
) -> None:
    source = timing_source(H100, "vllm")
    measured, asked = shape(8, 32), shape(32, 32)
    many = source.decode_attention(asked)
    assert many.source.source == "transferred"
    few = source.decode_attention(measured).value
    assert many.value.at(sequences, context) == pytest.approx(few.at(4 * sequences, context))


@pytest.mark.parametrize("gpu", ["a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s"])
def test_measured_shapes_keep_that_law(gpu: str) -> None:
    """Every measured (KV heads, heads) whose double or quadruple was measured too."""
    table = load_table(gpu, "vllm", "generation_attention")
    rows = table.select(kv_cache_dtype="bfloat16", head_dim=128, window_size=0)
    rows = rows.select(attn_dtype=str(rows.axis("attn_dtype")[0]))
    names = ("num_key_value_heads", "num_heads", "batch_size", "kv_tokens")
    keys = np.stack([rows.column(name) for name in names], axis=1)
    seconds = dict(zip(map(tuple, keys.tolist()), rows.latency_s.tolist(), strict=True))
    errors = [
        abs(few / many - 1.0)
        for (kv, heads, n, context), few in seconds.items()
        for times in (2, 4)
        if n % times == 0
        and (many := seconds.get((kv * times, heads * times, n // times, context))) is not None
    ]
    assert len(errors) > 3000
    assert float(np.median(errors)) < 0.04


def test_no_stand_in_for_experts_is_slower_than_16_bit_ones() -> None:
    """TensorRT-LLM's fp8 experts of Llama 4 Scout, twice as slow as vLLM's bfloat16 ones."""
    block = MoeBlock(hidden_size=5120, inter_size=8192, topk=1, num_experts=16, moe_tp=2, moe_ep=1)
    source, tokens = timing_source(H100, "vllm"), np.array([8.0, 64.0])
    fp8, plain = (source.moe_s(tokens, block, dtype) for dtype in ("fp8", "bfloat16"))
    assert (fp8.value < plain.value).all()
    assert fp8.source.source == "roofline"
    stand_in = super(chain.BackendChain, source).moe_s(tokens, block, "fp8")  # type: ignore[arg-type]
    assert (stand_in.value > plain.value).all()
