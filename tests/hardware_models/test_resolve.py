"""From engine arguments to an engine: every None filled in, every unknown name refused."""

import pytest

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import resolve_engine


def resolve(**changes):
    return resolve_engine(EngineArgs(**{"model": "Qwen/Qwen3-32B", "gpu": "H100"} | changes))


def test_every_none_is_filled_but_the_pins():
    args = resolve().args
    unset = [name for name, value in vars(args).items() if value is None]
    unset = [name for name in unset if "speculative" not in name]
    left_to_their_users = ["kernel_tables", "moe_backend", "all2all_backend", "load_balance_method"]
    pins = ["calibration", "num_gpu_blocks_override", "kv_cache_memory_bytes"]
    assert unset == [*left_to_their_users, "scheduling_policy", *pins]


def test_defaults_of_vllm_on_a_large_gpu():
    args = resolve().args
    assert (args.max_num_seqs, args.max_num_batched_tokens) == (1024, 8192)
    assert (args.gpu_memory_utilization, args.max_model_len) == (0.92, 40_960)


def test_what_the_user_says_is_kept():
    args = resolve(max_num_seqs=7, max_num_batched_tokens=512, gpu_memory_utilization=0.5).args
    assert (args.max_num_seqs, args.max_num_batched_tokens) == (7, 512)
    assert args.gpu_memory_utilization == 0.5


def test_never_more_sequences_than_tokens_by_default():
    assert resolve(max_num_batched_tokens=64).args.max_num_seqs == 64


def test_without_chunked_prefill_a_whole_prompt_fits_a_step():
    args = resolve(gpu="L40S", enable_chunked_prefill=False, max_model_len=16_384).args
    assert args.max_num_batched_tokens == 16_384


def test_switches_come_from_the_backend_unless_the_user_says_otherwise():
    args = resolve(backend="trtllm").args
    assert (args.block_size, args.enable_prefix_caching, args.enable_chunked_prefill) == (
        *(32, True, False),
    )
    said = resolve(backend="trtllm", block_size=64, enable_chunked_prefill=True).args
    assert (said.block_size, said.enable_chunked_prefill) == (64, True)
    assert resolve(enable_prefix_caching=False).args.enable_prefix_caching is False


def test_only_vllm_makes_room_for_a_whole_prompt():
    args = resolve(backend="trtllm").args
    assert (args.max_num_batched_tokens, args.max_model_len) == (8192, 40_960)


@pytest.mark.parametrize(
    ("gpu", "changes", "reserve_mib"),
    [
        # 512 + 1.5 x 8192 + 2 x 256 graphs of decode + 128 a GPU + 8 x 58 graphs of prefill.
        ("H100", {}, 512 + 12_288 + 512 + 128 + 464),
        ("H100", {"tensor_parallel_size": 4}, 512 + 12_288 + 1024 + 512 + 464),
        ("H100", {"max_num_batched_tokens": 1024}, 10_240),
        ("L4", {"model": "Qwen/Qwen3-8B"}, 512 + 3072 + 48 + 128 + 8 * 42),
    ],
)
def test_sglang_leaves_memory_to_activations_and_graphs(gpu, changes, reserve_mib):
    engine = resolve(gpu=gpu, backend="sglang", **changes)
    total = engine.gpu.memory_bytes / 2**20
    assert engine.args.gpu_memory_utilization == round((total - reserve_mib) / total, 3)


def test_resolving_twice_changes_nothing():
    once = resolve(model="llama-3.1-8b", quantization="fp8")
    assert resolve_engine(once.args) == once


def test_names_become_the_catalogues_own():
    args = resolve(model="qwen3-32b", gpu="NVIDIA H200", backend="TensorRT-LLM").args
    assert (args.model, args.gpu, args.backend) == ("Qwen/Qwen3-32B", "h200_sxm", "trtllm")


def test_quantisation_comes_from_the_checkpoint():
    assert resolve(model="Qwen/Qwen3-32B-AWQ").args.quantization == "awq"
    assert resolve(model="Qwen/Qwen3-32B-AWQ", quantization="awq_marlin").args.quantization == "awq"


def test_an_unquantised_checkpoint_can_be_quantised_while_loading():
    engine = resolve(quantization="fp8")
    assert engine.model.quantization.linear_bits_per_weight == 8.0


@pytest.mark.parametrize("method", ["awq", "gptq", "nvfp4"])
def test_methods_that_need_a_quantised_checkpoint(method):
    with pytest.raises(UserError, match="at load time: fp8"):
        resolve(quantization=method)


def test_a_checkpoint_is_not_quantised_twice():
    with pytest.raises(UserError, match="is quantised with 'awq'"):
        resolve(model="Qwen/Qwen3-32B-AWQ", quantization="fp8")


def test_the_cache_dtype_follows_the_checkpoint():
    assert resolve(model="nvidia/Llama-3.1-70B-Instruct-FP8").args.kv_cache_dtype == "fp8"
    assert resolve().args.kv_cache_dtype == "auto"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"model": "Qwen/Qwen3-23B"}, "model"),
        ({"gpu": "H10"}, "gpu"),
        ({"backend_version": "0.1.0"}, "backend_version"),
        ({"max_model_len": 10**6}, "max_model_len"),
    ],
)
def test_errors_say_which_argument(change, where):
    with pytest.raises(UserError) as caught:
        resolve(**change)
    assert caught.value.where == where


def test_an_unknown_backend_lists_all():
    with pytest.raises(UserError, match="allowed: sglang, static, trtllm, vllm"):
        resolve(backend="vlm")
