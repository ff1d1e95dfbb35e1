"""Fixtures of the search tests: a small space with a known answer, and importable helpers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dynosim.search.space import SearchSpace, parse_space

# Worker processes import the evaluators by name; they inherit this path.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def small_values() -> dict[str, Any]:
    """A space of 3 × 4 × 3 × 4 = 144 candidates, as it would stand in YAML."""
    return {
        "model": "Qwen/Qwen3-32B",
        "gpu": "h200_sxm",
        "backend": ["vllm", "sglang", "trtllm"],
        "tensor_parallel_size": [1, 2, 4, 8],
        "replicas": [1, 2, 4],
        "max_num_seqs": [8, 32, 128, 512],
        "workload": {"num_prompts": 20, "request_rate": 2.0},
    }


@pytest.fixture
def small_space(small_values: dict[str, Any]) -> SearchSpace:
    return parse_space(small_values)


@pytest.fixture
def large_space(small_values: dict[str, Any]) -> SearchSpace:
    """3 × 4 × 6 × 8 × 7 = 4,032 candidates: more than are simulated."""
    return parse_space(
        {
            **small_values,
            "replicas": [1, 2, 3, 4, 6, 8],
            "max_num_seqs": {"min": 8, "max": 1024, "log": True},
            "max_num_batched_tokens": {"min": 512, "max": 32768, "log": True},
            "n_trials": 80,
        }
    )
