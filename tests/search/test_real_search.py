"""The search on the real models: memory screen, simulation, quickstart."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynosim.search import dry_run, load_space, parse_space, search
from dynosim.search.defaults import full_screen
from dynosim.search.study import load_workload
from dynosim.sim.deployment import Deployment

WORKLOAD = {"num_prompts": 40, "request_rate": 4.0, "random_input_len": 512}


def reason(**fields: object) -> str | None:
    one = {"model": "Qwen/Qwen3-32B", "gpu": "h200_sxm", "workload": WORKLOAD, "max_gpus": 8}
    space = parse_space(one)
    screen = full_screen(space, load_workload(space))
    values = {"model": "Qwen/Qwen3-32B", "gpu": "h200_sxm", **fields}
    outcome = screen(Deployment(**values))  # type: ignore[arg-type]
    return None if outcome is None else outcome.reason


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"tensor_parallel_size": 8, "replicas": 1}, None),
        ({"tensor_parallel_size": 8, "replicas": 2}, "over_gpu_budget"),
        ({"tensor_parallel_size": 3}, "tp_does_not_divide_heads"),
        ({"gpu": "l40s"}, "oom"),
        ({"gpu": "h100_sxm", "max_model_len": 40960}, "kv_smaller_than_max_model_len"),
        ({"backend": "sglang", "backend_version": "0.19.0"}, "unsupported"),
        ({"enable_expert_parallel": True}, "unsupported"),
    ],
)
def test_what_cannot_run_is_refused_before_simulation_with_its_reason(
    fields: dict[str, object], expected: str | None
) -> None:
    assert reason(**fields) == expected


def test_a_space_of_data_parallel_ranks_is_searched_and_says_what_cannot_run() -> None:
    result = search(
        {
            "model": "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
            "gpu": "h200_sxm",
            "data_parallel_size": [1, 3, 4, 8],
            "enable_expert_parallel": [True, False],
            "max_model_len": 4096,
            "workload": {"num_prompts": 64, "request_rate": 8.0, "random_input_len": 256},
        },
        workers=1,
    )
    told = {
        (t.deployment.data_parallel_size, t.deployment.enable_expert_parallel): t.detail or None
        for t in result.trials
    }
    assert told[8, True] is None
    assert told[4, True] is None
    assert "no memory for the KV cache" in str(told[1, True])
    assert "data_parallel_size 3 = 3 GPUs do not divide 128 experts" in str(told[3, True])
    assert "do not divide experts of width 1536" not in str(told[3, False])
    assert "quantisation block" in str(told[8, False])


def test_overload_is_an_unstable_queue() -> None:
    """One H200 at 40 requests a second of 2,000 + 500 tokens is hopeless; at 0.2 it is idle."""
    values = {"model": "Qwen/Qwen3-32B", "gpu": "h200_sxm", "max_num_seqs": 32}
    load = {"num_prompts": 200, "random_input_len": 2000, "random_output_len": 500}
    busy = search({**values, "workload": {**load, "request_rate": 40.0}}, workers=1)
    idle = search({**values, "workload": {**load, "request_rate": 0.2}}, workers=1)
    assert [t.reason for t in busy.trials] == ["unstable_queue"]
    assert [t.reason for t in idle.trials] == [None]


def test_a_short_max_model_len_is_no_bargain() -> None:
    """A candidate that refuses long requests is not compared with those that serve them."""
    values = {
        "model": "Qwen/Qwen3-32B",
        "gpu": "h200_sxm",
        "max_model_len": [600, 8192],
        "workload": {**WORKLOAD, "random_range_ratio": 0.5},
    }
    result = search(values, workers=1)
    assert [t.reason for t in result.trials] == ["refuses_requests", None]


def test_the_quickstart_example(checkout: Path) -> None:
    space = load_space(checkout / "examples" / "quickstart" / "space.yaml")
    report = dry_run(space)
    assert space.size == 768
    assert report.plan.refused == {"over_gpu_budget": 288}
    assert report.estimate_s(workers=2) > 0
    assert "288 over_gpu_budget" in "\n".join(report.lines(workers=2))
    result = search(space, n_trials=12, workers=1)
    assert result.frontier
    assert all(t.deployment.num_gpus <= 8 for t in result.frontier)
    assert all(t.timing for t in result.trials if t.is_simulated)


def test_same_bytes_serial_or_parallel_on_a_real_trace(shared_data: Path, tmp_path: Path) -> None:
    trace = shared_data / "traces" / "mooncake-conversation_trace.jsonl.gz"
    values = {
        "model": "Qwen/Qwen3-32B",
        "gpu": "h200_sxm",
        "backend": ["vllm", "sglang"],
        "tensor_parallel_size": [2, 4, 8],
        "replicas": [1, 2],
        "max_num_seqs": [64, 256],
        "max_gpus": 8,
        "workload": {"trace": str(trace), "limit": 60},
    }
    for workers in (1, 2):
        search(values, output_dir=tmp_path / str(workers), workers=workers)
    for name in ("trials.csv", "frontier.csv", "frontier.png", "manifest.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
