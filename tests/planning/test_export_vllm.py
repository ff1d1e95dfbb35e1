"""The exported vLLM command, read by vLLM's own parser, is the candidate.

``data/vllm_parsed.json`` holds what the parser of a real vLLM made of the commands below. With
DYNOSIM_VLLM_PYTHON set to a Python that has vLLM they are parsed anew; with
DYNOSIM_UPDATE_GOLDEN=1 too, the answers are recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dynosim.hardware_models.resolve import resolve_engine
from dynosim.planning.exports.base import Candidate
from dynosim.planning.exports.vllm import arguments
from dynosim.planning.exports.vllm_bench import arguments as bench_arguments
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

HERE = Path(__file__).parent
RECORDED = HERE / "data" / "vllm_parsed.json"
PYTHON = "DYNOSIM_VLLM_PYTHON"

CANDIDATES: dict[str, dict[str, Any]] = {
    "defaults": {"model": "Qwen/Qwen3-8B"},
    "limits": {
        "model": "meta-llama/Llama-3.1-70B-Instruct",
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 2,
        "max_model_len": 32768,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 4096,
        "gpu_memory_utilization": 0.85,
        "block_size": 32,
        "kv_cache_dtype": "fp8",
        "quantization": "fp8",
    },
    "switches_off": {
        "model": "Qwen/Qwen3-8B",
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
        "async_scheduling": False,
    },
    "switches_on": {
        "model": "Qwen/Qwen3-8B",
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "async_scheduling": True,
        "enforce_eager": True,
        "scheduling_policy": "priority",
        "long_prefill_token_threshold": 2048,
        "api_server_count": 4,
    },
    "pool": {
        "model": "Qwen/Qwen3-8B",
        "num_gpu_blocks_override": 5000,
        "kv_cache_memory_bytes": 8_000_000_000,
        "kv_cache_dtype": "bfloat16",
    },
    "experts": {
        "model": "Qwen/Qwen3-235B-A22B-FP8",
        "tensor_parallel_size": 2,
        "data_parallel_size": 4,
        "enable_expert_parallel": True,
        "all2all_backend": "deepep_low_latency",
    },
    "ngram": {
        "model": "Qwen/Qwen3-8B",
        "speculative_method": "ngram",
        "num_speculative_tokens": 4,
    },
    "draft": {
        "model": "Qwen/Qwen3-32B",
        "tensor_parallel_size": 2,
        "speculative_method": "draft_model",
        "speculative_model": "Qwen/Qwen3-0.6B",
        "num_speculative_tokens": 3,
    },
}


def command(fields: dict[str, Any]) -> list[str]:
    deployment = Deployment(gpu="h200", backend="vllm", backend_version="0.24.0", **fields)
    engine = resolve_engine(deployment)
    workload = WorkloadSpec()
    return arguments(
        Candidate(deployment=deployment, engine=engine, workload=workload, goodput_ms={}, seed=0)
    )


def differences(fields: dict[str, Any], parsed: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns field -> (asked, understood) where vLLM understood something else."""
    speculation = parsed["speculative_config"] or {}
    understood = parsed | {
        "speculative_method": speculation.get("method"),
        "speculative_model": speculation.get("model"),
        "num_speculative_tokens": speculation.get("num_speculative_tokens"),
    }
    return {k: (v, understood[k]) for k, v in fields.items() if understood[k] != v}


@pytest.mark.parametrize("name", CANDIDATES)
def test_vllm_understood_the_candidate(name: str) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[name]
    assert command(CANDIDATES[name]) == recorded["command"], "the command changed: record it anew"
    assert differences(CANDIDATES[name], recorded["fields"]) == {}


def parsed_by_vllm(commands: list[list[str]]) -> list[dict[str, Any]]:
    """Returns what a real vLLM makes of commands; skips where none is named."""
    python = os.environ.get(PYTHON)
    if python is None:
        pytest.skip(f"{PYTHON} names no Python that has vLLM")
    done = subprocess.run(
        [python, str(HERE / "parse_with_vllm.py")],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        env=os.environ | {"VLLM_LOGGING_LEVEL": "ERROR"},
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_the_parser_at_hand_says_the_same() -> None:
    commands = {name: command(fields) for name, fields in CANDIDATES.items()}
    answers = parsed_by_vllm(list(commands.values()))
    pairs = zip(commands.items(), answers, strict=True)
    found = {name: {"command": words} | answer for (name, words), answer in pairs}
    if os.environ.get("DYNOSIM_UPDATE_GOLDEN"):
        RECORDED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert {n: differences(CANDIDATES[n], a["fields"]) for n, a in found.items()} == {
        n: {} for n in found
    }


def test_the_benchmark_at_hand_takes_its_commands() -> None:
    load = WorkloadSpec(
        random_input_len=2000,
        random_output_len=300,
        random_range_ratio=0.2,
        random_prefix_len=512,
        request_rate=4.0,
        burstiness=0.5,
        max_concurrency=64,
        num_prompts=300,
    )
    (found,) = parsed_by_vllm([bench(load)])
    fields = found["fields"]
    asked = {
        "random_input_len": 2000,
        "random_output_len": 300,
        "random_prefix_len": 512,
        "request_rate": 4.0,
        "burstiness": 0.5,
        "max_concurrency": 64,
        "num_prompts": 300,
        "goodput": ["ttft:500"],
        "ignore_eos": True,
    }
    assert {name: fields[name] for name in asked} == asked
    assert float(fields["random_range_ratio"]) == 0.2


def bench(load: WorkloadSpec) -> list[str]:
    deployment = Deployment(gpu="h200", model="Qwen/Qwen3-8B")
    return bench_arguments(
        Candidate(
            deployment=deployment,
            engine=resolve_engine(deployment),
            workload=load,
            goodput_ms={"ttft": 500.0},
            seed=0,
        )
    )
