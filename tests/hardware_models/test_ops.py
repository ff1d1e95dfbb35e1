"""The ops of a model: all its weights and nothing twice, whatever the shard."""

from __future__ import annotations

from typing import Any

import pytest

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.ops import AllReduce, Experts, Gemm, ModelOps, decompose, shard

LLAMA = "meta-llama/Llama-3.1-70B-Instruct"
QWEN_MOE = "Qwen/Qwen3-235B-A22B"
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
GPT_OSS = "openai/gpt-oss-120b"


def engine(model: str, tp: int = 1, **args: Any) -> ResolvedEngine:
    return resolve_engine(EngineArgs(model=model, gpu="h200", tensor_parallel_size=tp, **args))


def gemms(ops: ModelOps) -> list[Gemm]:
    parts = [g for a in ops.attention for g in a.block]
    return [op for op in (*ops.tokens, *ops.logits) if isinstance(op, Gemm)] + parts


def weights(ops: ModelOps) -> float:
    dense = sum(g.count * g.n * g.k for g in gemms(ops))
    blocks = [(op.count, op.block) for op in ops.tokens if isinstance(op, Experts)]
    return dense + sum(
        count * 3 * b.hidden_size * b.inter_size * b.num_experts / (b.moe_tp * b.moe_ep)
        for count, b in blocks
    )


@pytest.mark.parametrize(
    ("model", "billions"),
    # Published totals less the input embedding, which is looked up and not multiplied.
    [
        (LLAMA, 70.55 - 1.05),
        (QWEN_MOE, 235.1 - 0.6),
        (DEEPSEEK, 671.0 - 0.9),
        (GPT_OSS, 116.8 - 0.6),
    ],
)
def test_one_gpu_multiplies_by_every_weight_of_the_model(model: str, billions: float) -> None:
    assert weights(decompose(engine(model))) == pytest.approx(billions * 1e9, rel=0.01)


def test_tensor_parallelism_divides_the_weights() -> None:
    whole, eighth = (weights(decompose(engine(LLAMA, tp))) for tp in (1, 8))
    assert eighth == pytest.approx(whole / 8)


def test_llama_70b_shards_by_hand() -> None:
    ops = decompose(engine(LLAMA, 4))
    shapes = {(g.name, g.count, g.n, g.k) for g in gemms(ops)}
    assert shapes == {
        ("qkv", 80, 16 * 128 + 2 * 2 * 128, 8192),
        ("o", 80, 8192, 16 * 128),
        ("mlp up", 80, 2 * 7168, 8192),
        ("mlp down", 80, 8192, 7168),
        ("lm head", 1, 32064, 8192),
    }
    (attention,) = ops.attention
    assert (attention.count, attention.shape.heads, attention.shape.kv_heads) == (80, 16, 2)


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    (attention,) = decompose(engine(QWEN_MOE, 8)).attention
    assert (attention.shape.heads, attention.shape.kv_heads) == (8, 1)


def test_two_all_reduces_a_layer_and_one_behind_the_embedding() -> None:
    def count(tp: int) -> int:
        return sum(op.count for op in decompose(engine(LLAMA, tp)).tokens if type(op) is AllReduce)

    assert count(1) == 0
    assert count(2) == 2 * 80 + 1


def test_expert_parallelism_splits_experts_instead_of_their_width() -> None:
    def block(**args: Any) -> tuple[int, int]:
        ops = decompose(engine(QWEN_MOE, 4, **args))
        (experts,) = (op for op in ops.tokens if isinstance(op, Experts))
        return experts.block.moe_tp, experts.block.moe_ep

    assert block() == (4, 1)
    assert block(enable_expert_parallel=True) == (1, 4)


def test_deepseek_has_dense_layers_experts_and_latent_attention() -> None:
    ops = decompose(engine(DEEPSEEK, 8))
    assert sum(a.count for a in ops.attention) == 61
    assert {a.shape.kind for a in ops.attention} == {"mla"}
    (experts,) = (op for op in ops.tokens if isinstance(op, Experts))
    assert (experts.count, experts.dtype) == (58, "fp8_block")


def test_gpt_oss_alternates_windows() -> None:
    windows = sorted((a.shape.window or 0, a.count) for a in decompose(engine(GPT_OSS)).attention)
    assert windows == [(0, 18), (128, 18)]


def test_an_fp8_cache_changes_attention_only() -> None:
    plain, fp8 = (decompose(engine(LLAMA, kv_cache_dtype=kv)) for kv in ("auto", "fp8"))
    read, read_fp8 = (ops.attention[0].shape.kv_bytes_per_token for ops in (plain, fp8))
    assert read == 2 * read_fp8
    assert fp8.tokens == plain.tokens


@pytest.mark.parametrize(("width", "parts", "largest"), [(128256, 4, 32064), (10, 4, 3), (1, 8, 1)])
def test_shards_round_up(width: int, parts: int, largest: int) -> None:
    assert shard(width, parts) == largest
