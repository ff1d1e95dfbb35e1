"""The memory plan: answers that can be worked out by hand, and laws that always hold."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynosim.hardware_models.backends import list_backends
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.memory.constants import memory_sources
from dynosim.hardware_models.memory.hints import fits, largest_model_len
from dynosim.hardware_models.memory.kv_cache import kv_layout, layer_kv_bytes_per_token
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.memory.stages import pipeline_stages
from dynosim.hardware_models.memory.weights import Cuts, stage_weight_bytes
from dynosim.hardware_models.resolve import resolve_engine

GIB = 2**30
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"


def engine(**arguments):
    return resolve_engine(EngineArgs(**{"gpu": "H100"} | arguments))


def plan(**arguments):
    return plan_memory(engine(**arguments))


def slots(model):
    found = engine(model=model)
    layout = kv_layout(found, pipeline_stages(found.model, 1)[0])
    return sum(group.layers for group in layout.groups)


# --- Sizing questions with known answers (issue numbers are vllm-project/vllm's)


def test_70b_at_128k_takes_40_gib_a_request():
    """#12400: 327,680 bytes a token in bf16."""
    found = plan(model=LLAMA_70B)
    assert found.kv_bytes_per_token == 327_680
    assert found.kv_bytes_per_token * 131_072 == 40 * GIB


def test_70b_for_five_users_at_128k_needs_eight_gpus_or_fp8_on_four():
    """#12400."""
    assert plan(model=LLAMA_70B, tensor_parallel_size=8).max_concurrency >= 5
    assert plan(model=LLAMA_70B, tensor_parallel_size=4).max_concurrency < 5
    fp8 = {"model": "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "kv_cache_dtype": "fp8"}
    assert plan(tensor_parallel_size=4, **fp8).max_concurrency >= 5


def test_70b_at_2k_takes_671_mb_not_2_7_gb():
    """Grouped-query attention: 8 key-value heads, not 64 (a common calculator error)."""
    assert 2048 * plan(model=LLAMA_70B).kv_bytes_per_token / 1e9 == pytest.approx(0.67, abs=0.005)


def test_70b_weights():
    found = engine(model=LLAMA_70B)
    weights = stage_weight_bytes(found.model, pipeline_stages(found.model, 1)[0], Cuts(1, 1, 1), 64)
    assert weights / GIB == pytest.approx(131.4, abs=0.1)


def test_70b_on_two_h100_is_refused_with_the_length_that_fits():
    """#10517: pool smaller than max_model_len; the text must say by how much."""
    found = plan(model=LLAMA_70B, tensor_parallel_size=2)
    assert not found.feasible
    assert "smaller than one request of max_model_len 131,072" in found.reason
    assert f"--max-model-len {found.kv_cache_tokens}" in found.hint


def test_the_pool_is_per_engine_and_split_over_ranks_by_heads():
    """#13061, #5248: twice the ranks, half the bytes per token on each."""
    one = plan(model="Qwen/Qwen2.5-7B-Instruct", kv_cache_memory_bytes=8 * GIB)
    two = plan(
        model="Qwen/Qwen2.5-7B-Instruct", kv_cache_memory_bytes=8 * GIB, tensor_parallel_size=2
    )
    assert one.kv_bytes_per_token == 2 * two.kv_bytes_per_token
    assert abs(two.kv_cache_tokens - 2 * one.kv_cache_tokens) <= 16


def test_heads_are_copied_where_there_are_fewer_than_ranks():
    sizes = [
        layer_kv_bytes_per_token(engine(model="Qwen/Qwen2.5-72B-Instruct", tensor_parallel_size=tp))
        for tp in (1, 2, 4, 8, 16)
    ]
    assert sizes == [4096, 2048, 1024, 512, 512]


@pytest.mark.parametrize("tp", [1, 2])
def test_the_latent_of_deepseek_is_copied_to_every_rank(tp):
    found = plan(model="deepseek-ai/DeepSeek-V2-Lite-Chat", tensor_parallel_size=tp)
    assert found.kv_bytes_per_token == 31_104


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B-Instruct"])
def test_fp8_cache_holds_twice_the_tokens_and_leaves_weights_alone(model):
    """#25350."""
    wide, narrow = plan(model=model), plan(model=model, kv_cache_dtype="fp8")
    assert narrow.weights_bytes == wide.weights_bytes
    assert abs(narrow.kv_cache_tokens - 2 * wide.kv_cache_tokens) <= 16


def test_a_pinned_pool_is_taken_as_given():
    """#18121: --kv-cache-memory-bytes and --num-gpu-blocks-override."""
    by_bytes = plan(model="meta-llama/Llama-3.1-8B", kv_cache_memory_bytes=16 * GIB)
    assert by_bytes.kv_cache_tokens == 16 * GIB // 131_072
    by_blocks = plan(model="meta-llama/Llama-3.1-8B", num_gpu_blocks_override=1_000)
    assert by_blocks.kv_cache_tokens == 16_000


def test_the_pool_does_not_depend_on_max_model_len():
    pools = {plan(model="meta-llama/Llama-3.1-8B", max_model_len=n).kv_cache_tokens
             for n in (2048, 8192, 131_072)}  # fmt: skip
    assert len(pools) == 1


def test_vllms_own_lines():
    found = plan(
        model="meta-llama/Llama-3.1-8B", num_gpu_blocks_override=29_751, max_model_len=8192
    )
    assert found.lines() == (
        "GPU KV cache size: 476,016 tokens",
        "Maximum concurrency for 8,192 tokens per request: 58.11x",
    )


# --- Models with several kinds of layers


@pytest.mark.parametrize(
    ("model", "padded"),
    [
        ("google/gemma-3-27b-it", 70),
        ("google/gemma-3-12b-it", 48),
        ("google/gemma-3-4b-it", 35),
        ("openai/gpt-oss-20b", 24),
    ],
)
def test_layers_are_padded_into_groups_of_equal_size(model, padded):
    assert slots(model) == padded


def test_linear_attention_sets_the_block_size():
    """#40691: Qwen3.5-27B on vLLM 0.19, 1487 blocks of 784 tokens in four groups."""
    found = plan(
        model="Qwen/Qwen3.5-27B",
        num_gpu_blocks_override=1487,
        max_model_len=32_768,
        backend_version="0.19.0",
    )
    assert found.kv_cache_tokens == 290_864
    assert f"{found.max_concurrency:.2f}" == "33.04"


def test_newer_versions_derive_the_printed_tokens_from_concurrency():
    old, new = (
        plan(
            model="google/gemma-3-12b-it",
            num_gpu_blocks_override=48_866,
            max_model_len=8192,
            backend_version=version,
        )
        for version in ("0.19.0", "0.24.0")
    )
    assert old.kv_cache_tokens == 130_304
    assert f"{old.max_concurrency:.2f}" == "15.88"
    assert new.kv_cache_tokens == int(new.max_concurrency * 8192)


# --- Refusals


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"model": "Qwen/Qwen3-14B", "tensor_parallel_size": 5}, "tensor_parallel_size 5"),
        ({"model": "Qwen/Qwen3-32B", "tensor_parallel_size": 3}, "64 attention heads"),
        ({"model": "Qwen/Qwen3-235B-A22B-FP8", "tensor_parallel_size": 8}, "quantisation block"),
        ({"model": "deepseek-ai/DeepSeek-V3", "tensor_parallel_size": 8}, "no memory for the KV"),
        ({"model": "Qwen/Qwen3-8B", "gpu_memory_utilization": 1.0}, "are free at start"),
        ({"model": "Qwen/Qwen3-8B", "pipeline_parallel_size": 37}, "exceeds 36 layers"),
        ({"model": "Qwen/Qwen3-8B", "enable_expert_parallel": True}, "experts"),
        ({"model": "openai/gpt-oss-20b", "gpu": "T4"}, "compute capability"),
    ],
)
def test_what_vllm_refuses_is_refused_with_the_reason(arguments, reason):
    found = plan(**arguments)
    assert not found.feasible
    assert reason in found.reason


def test_fp8_on_ampere_runs_and_says_how():
    found = plan(model="RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", gpu="A100")
    assert found.feasible
    assert "computed in 16 bits" in found.notes[0]


def test_gpt_oss_fails_to_warm_up_the_sampler_at_95_percent():
    """#19804 and the failed start among the logs; half the sequences fit."""
    found = plan(
        model="openai/gpt-oss-20b",
        gpu_memory_utilization=0.95,
        max_model_len=8192,
        backend_version="0.19.0",
    )
    assert "1024 sequences" in found.reason
    assert "--gpu-memory-utilization 0.94" in found.hint


def test_a_hint_holds_what_it_promises():
    tight = engine(model="Qwen/Qwen3-32B", max_model_len=32_000, backend_version="0.11.0")
    length = largest_model_len(tight)
    assert fits(tight, max_model_len=length)
    assert not fits(tight, max_model_len=length + 16)
    assert f"--max-model-len {length}" in plan_memory(tight).hint


def test_nothing_fits_is_said():
    assert "no single change" in plan(model="moonshotai/Kimi-K2-Instruct", gpu="T4").hint


# --- Versions and backends


def test_activations_fell_at_0_17():
    old, new = (
        plan(model="Qwen/Qwen3-14B", backend_version=v).activation_bytes
        for v in ("0.16.0", "0.17.0")
    )
    assert old / GIB == pytest.approx(5.64, rel=0.02)
    assert new / GIB == pytest.approx(2.23, rel=0.02)


def test_cuda_graphs_leave_the_budget_from_0_21():
    old, new = (
        plan(model="Qwen/Qwen3-14B", backend_version=v, gpu_memory_utilization=0.9)
        for v in ("0.20.0", "0.21.0")
    )
    assert not old.cuda_graphs_deducted
    assert new.cuda_graphs_deducted
    assert old.kv_cache_bytes - new.kv_cache_bytes == new.cuda_graph_bytes


def test_sglang_and_tensorrt_llm_read_their_share_in_their_own_way():
    shape = {"model": "Qwen/Qwen3-32B", "gpu": "H200", "gpu_memory_utilization": 0.9}
    vllm, sglang, trtllm = (plan(backend=b, **shape) for b in ("vllm", "sglang", "trtllm"))
    assert sglang.kv_cache_bytes == sglang.budget_bytes - sglang.weights_bytes
    left = trtllm.kv_cache_bytes / 0.9
    taken = trtllm.weights_bytes + trtllm.activation_bytes + trtllm.non_torch_bytes
    assert left + taken == pytest.approx(trtllm.total_bytes, rel=0.01)
    assert vllm.kv_cache_bytes < trtllm.kv_cache_bytes


@pytest.mark.parametrize("backend", list_backends())
def test_every_constant_has_a_source_with_a_date(backend):
    for constant, source in memory_sources(backend, "99.0.0").items():
        assert source.title, constant
        assert source.date >= "2025", constant


# --- Laws


MODELS = st.sampled_from(
    ["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite",
     "google/gemma-3-4b-it", "openai/gpt-oss-20b"]
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(model=MODELS, share=st.floats(0.5, 0.9), tokens=st.sampled_from([1024, 2048, 8192]))
def test_parts_add_up_to_the_budget(model, share, tokens):
    found = plan(model=model, gpu_memory_utilization=share, max_num_batched_tokens=tokens)
    parts = (
        found.weights_bytes
        + found.activation_bytes
        + found.non_torch_bytes
        + found.cuda_graph_bytes
        + found.kv_cache_bytes
    )
    assert parts == found.budget_bytes or not found.feasible


@settings(max_examples=40, deadline=None)
@given(model=MODELS, share=st.floats(0.5, 0.88))
def test_more_memory_never_holds_fewer_tokens(model, share):
    less = plan(model=model, gpu_memory_utilization=share, max_model_len=4096)
    more = plan(model=model, gpu_memory_utilization=share + 0.02, max_model_len=4096)
    assert more.kv_cache_tokens >= less.kv_cache_tokens


@settings(max_examples=40, deadline=None)
@given(model=MODELS, tokens=st.integers(512, 16_384), seqs=st.integers(1, 512))
def test_larger_steps_never_take_less_memory(model, tokens, seqs):
    small = plan(model=model, max_num_batched_tokens=tokens, max_num_seqs=seqs)
    long = plan(model=model, max_num_batched_tokens=2 * tokens, max_num_seqs=seqs)
    wide = plan(model=model, max_num_batched_tokens=tokens, max_num_seqs=seqs + 1)
    assert long.activation_bytes >= small.activation_bytes
    assert wide.activation_bytes >= small.activation_bytes


@settings(max_examples=30, deadline=None)
@given(model=MODELS, stages=st.integers(1, 8))
def test_stages_hold_every_layer_once(model, stages):
    found = engine(model=model).model
    cut = pipeline_stages(found, stages)
    assert sum(n for stage in cut for _, n in stage.layers) == found.num_layers
    assert sum(stage.first for stage in cut) == sum(stage.last for stage in cut) == 1


@settings(max_examples=30, deadline=None)
@given(model=MODELS, tp=st.sampled_from([1, 2, 4]))
def test_more_ranks_never_hold_more_weights_each(model, tp):
    one = plan(model=model, tensor_parallel_size=tp).weights_bytes
    two = plan(model=model, tensor_parallel_size=2 * tp).weights_bytes
    assert two < one
    assert 2 * two >= one * 0.999


def test_a_plan_can_be_hashed_and_replaced():
    found = plan(model="Qwen/Qwen3-8B")
    assert hash(replace(found, hint="x")) != hash(found)
