"""NIM's environment names, as arguments of the engine inside the container."""

from __future__ import annotations

from dataclasses import fields

import pytest

from dynosim.hardware_models import nim
from dynosim.hardware_models.backends import get_backend, list_backends
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.nim import from_nim_environment
from dynosim.hardware_models.resolve import resolve_engine


def test_an_empty_environment_is_the_engine_of_the_current_generation() -> None:
    assert from_nim_environment({}) == {"backend": "vllm"}
    assert get_backend("nim").name == get_backend("NIM").name == "vllm"


def test_names_become_engine_arguments() -> None:
    found = from_nim_environment(
        {
            "NIM_MODEL_NAME": "hf://meta-llama/Llama-3.1-8B-Instruct",
            "NIM_MAX_MODEL_LEN": "8192",
            "NIM_KVCACHE_PERCENT": "0.8",
            "NIM_MAX_NUM_SEQS": "64",
            "NIM_MAX_NUM_BATCHED_TOKENS": "4096",
            "NIM_TENSOR_PARALLEL_SIZE": "2",
            "NIM_ENABLE_KV_CACHE_REUSE": "1",
            "NIM_KV_CACHE_DTYPE": "fp8",
            "NIM_LOG_LEVEL": "INFO",
            "PATH": "/usr/bin",
        }
    )
    assert found == {
        "backend": "vllm",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "max_model_len": 8192,
        "gpu_memory_utilization": 0.8,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4096,
        "tensor_parallel_size": 2,
        "enable_prefix_caching": True,
        "kv_cache_dtype": "fp8",
    }
    args = resolve_engine(EngineArgs(gpu="h100", **found)).args
    assert (args.tensor_parallel_size, args.max_num_seqs) == (2, 64)


@pytest.mark.parametrize("name", ["NIM_KVCACHE_PERCENT", "NIM_KV_CACHE_PERCENT"])
def test_both_spellings_of_the_kv_share_are_read(name: str) -> None:
    assert from_nim_environment({name: "0.5"})["gpu_memory_utilization"] == 0.5


def test_a_name_that_only_one_engine_reads_says_which_engine_it_is() -> None:
    found = from_nim_environment(
        {"NIM_MAX_BATCH_SIZE": "16", "NIM_SCHEDULER_POLICY": "guarantee_no_evict"}
    )
    assert found == {
        "backend": "trtllm",
        "max_num_seqs": 16,
        "scheduling_policy": "guaranteed_no_evict",
        # Those containers reuse blocks only where asked to.
        "enable_prefix_caching": False,
    }


def test_a_readable_profile_says_engine_precision_and_parallel_sizes() -> None:
    profile = "tensorrt_llm-h100-fp8-tp4-pp2-throughput"
    found = from_nim_environment({"NIM_MODEL_PROFILE": profile})
    assert found["backend"] == "trtllm"
    assert found["quantization"] == "fp8"
    assert (found["tensor_parallel_size"], found["pipeline_parallel_size"]) == (4, 2)


def test_pinned_devices_are_all_used_where_no_size_is_given() -> None:
    assert from_nim_environment({"CUDA_VISIBLE_DEVICES": "0,3"})["tensor_parallel_size"] == 2
    halves = {"NVIDIA_VISIBLE_DEVICES": "0,1,2,3", "NIM_PIPELINE_PARALLEL_SIZE": "2"}
    assert from_nim_environment(halves)["tensor_parallel_size"] == 2
    assert "tensor_parallel_size" not in from_nim_environment({"NVIDIA_VISIBLE_DEVICES": "all"})


def test_the_pool_can_be_sized_in_longest_sequences() -> None:
    # 2.5 x 4,000 tokens are 625 blocks of 16.
    found = from_nim_environment(
        {
            "NIM_RELAX_MEM_CONSTRAINTS": "1",
            "NIM_NUM_KV_CACHE_SEQ_LENS": "2.5",
            "NIM_MAX_MODEL_LEN": "4000",
        }
    )
    assert found["num_gpu_blocks_override"] == 625


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"NIM_MAX_MODEL_LENGTH": "1"}, r"NIM_MAX_MODEL_LENGTH: .*\n  nearest: NIM_MAX_MODEL_LEN"),
        ({"NIM_MAX_MODEL_LEN": "8k"}, r"NIM_MAX_MODEL_LEN: '8k' is not a whole number"),
        ({"NIM_KVCACHE_PERCENT": "90"}, r"NIM_KVCACHE_PERCENT: 90 is not a share.*\n  write 0.9"),
        ({"NIM_ENABLE_KV_CACHE_REUSE": "maybe"}, "neither on nor off"),
        ({"NIM_SCHEDULER_POLICY": "lpm"}, "allowed: guarantee_no_evict, max_utilization"),
        ({"NIM_DISABLE_CUDA_GRAPH": "1"}, "NIM_DISABLE_CUDA_GRAPH: '1' is not simulated"),
        ({"NIM_PASSTHROUGH_ARGS": "--max-num-seqs 8"}, "is not simulated"),
        (
            {"NIM_KVCACHE_PERCENT": "0.9", "NIM_KV_CACHE_PERCENT": "0.8"},
            "NIM_KV_CACHE_PERCENT: 0.8 contradicts NIM_KVCACHE_PERCENT=0.9",
        ),
        ({"NIM_MODEL_PROFILE": "07cd4f2b"}, "NIM_MODEL_PROFILE: '07cd4f2b' does not say"),
        ({"NIM_MODEL_PROFILE": "vllm-nvfp4-tp1-pp1"}, "nvfp4 weights come with a checkpoint"),
        (
            {"NIM_MODEL_PROFILE": "vllm-bf16-tp2-pp1", "NIM_TENSOR_PARALLEL_SIZE": "4"},
            "tp2 contradicts tensor_parallel_size 4",
        ),
        (
            {"NIM_MODEL_PROFILE": "vllm-bf16-tp1-pp1", "NIM_MAX_BATCH_SIZE": "8"},
            "NIM_MAX_BATCH_SIZE: only trtllm reads it",
        ),
        (
            {"CUDA_VISIBLE_DEVICES": "0", "NIM_TENSOR_PARALLEL_SIZE": "2"},
            r"CUDA_VISIBLE_DEVICES: 1 GPU\(s\) for 2 x 1",
        ),
        ({"NIM_NUM_KV_CACHE_SEQ_LENS": "2"}, "set NIM_RELAX_MEM_CONSTRAINTS=1"),
        (
            {"NIM_NUM_KV_CACHE_SEQ_LENS": "2", "NIM_RELAX_MEM_CONSTRAINTS": "1"},
            "set NIM_MAX_MODEL_LEN as well",
        ),
        (
            {
                "NIM_NUM_KV_CACHE_SEQ_LENS": "0.5",
                "NIM_RELAX_MEM_CONSTRAINTS": "1",
                "NIM_MAX_MODEL_LEN": "4000",
            },
            "holds not even one sequence",
        ),
    ],
)
def test_what_cannot_be_meant_is_an_error(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_nim_environment(environment)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(UserError) as caught:
        from_nim_environment({"NIM_MAX_NUM_SEQ": "8", "NIM_MAX_MODEL_LEN": "0"})
    assert "NIM_MAX_NUM_SEQS" in str(caught.value)
    assert "NIM_MAX_MODEL_LEN" in str(caught.value)


def test_options_that_are_off_are_no_problem() -> None:
    off = {"NIM_DISABLE_CUDA_GRAPH": "false", "NIM_LOW_MEMORY_MODE": "0"}
    assert from_nim_environment(off | {"NIM_NUM_COMPUTE_NODES": "1"}) == {"backend": "vllm"}


def test_the_card_names_only_fields_and_engines_that_exist_and_says_where_it_read_them() -> None:
    card = nim._card()
    known = {field.name for field in fields(EngineArgs)}
    for name, row in card["fields"].items():
        assert row["field"] in known, name
        assert row.get("engine", "vllm") in list_backends(), name
        assert card["sources"][row["source"]]["url"], name
    assert set(card["engines"].values()) <= set(list_backends())
    lists = [*card["fields"], *card["combined"], *card["not_modelled"], *card["without_effect"]]
    assert len(lists) == len(set(lists)), "a name stands in two lists"
