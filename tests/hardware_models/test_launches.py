"""Kernels a step launches, counted by hand."""

from __future__ import annotations

import pytest

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.timing.launches import dense_layers, num_eager, num_in_graph
from dynosim.hardware_models.timing.ops import AllReduce, Elementwise, ModelOps, decompose


def ops_of(model: str, backend: str = "vllm", tp: int = 1) -> ModelOps:
    return decompose(
        resolve_engine(
            EngineArgs(model=model, gpu="H200", backend=backend, tensor_parallel_size=tp)
        )
    )


@pytest.mark.parametrize("tp", [1, 8])
def test_a_dense_layer_is_the_unit(tp: int) -> None:
    ops = ops_of("meta-llama/Llama-3.1-8B-Instruct", tp=tp)
    assert dense_layers(num_eager(ops), tp) == 32
    assert dense_layers(num_in_graph(ops, ops.tokens), tp) == 32


def test_experts_are_one_op_of_a_graph_and_eight_launches() -> None:
    ops = ops_of("openai/gpt-oss-120b")
    # 36 layers: 2 norms, qkv, rotary, attention, o, router, choice, experts.
    assert num_in_graph(ops, ops.tokens) == 1 + 36 * 9
    assert num_eager(ops) == 1 + 36 * (8 + 8)


def test_blocks_of_scales_are_found_by_a_kernel_of_their_own() -> None:
    ops = ops_of("Qwen/Qwen3-8B-FP8")
    # Norms of queries and keys, and four products that quantise.
    assert num_eager(ops) == 1 + 36 * (9 + 2 + 4)


@pytest.mark.parametrize(("backend", "kernels"), [("vllm", 2), ("sglang", 1), ("trtllm", 0)])
def test_norms_of_queries_and_keys(backend: str, kernels: int) -> None:
    plain = sum(op.count for op in ops_of("Qwen/Qwen3-8B", backend).tokens)
    assert plain == 1 + 36 * (8 + kernels)


def test_norms_over_all_heads_sum_over_gpus() -> None:
    ops = ops_of("MiniMaxAI/MiniMax-M2.5", tp=4)
    assert AllReduce(62, 8.0) in ops.tokens
    assert sum(op.count for op in ops.tokens if isinstance(op, AllReduce)) == 1 + 3 * 62
    assert any(op == Elementwise(62, 4.0 * 256) for op in ops.tokens)
