"""The command lines that scripts already rely on, word for word."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SIMULATE = """
    simulate --model Qwen/Qwen3-32B --gpu h200_sxm --backend vllm {version}
    --tensor-parallel-size 2 --replicas 8 --router round_robin --block-size 512
    --trace {trace} {format} --json out.json
"""
MEMORY = """
    memory --model Qwen/Qwen3-32B --gpu h200_sxm --tensor-parallel-size 2 {extra}
    --gpu-memory-utilization 0.9 --max-model-len 32768 --backend vllm --backend-version 0.19.0
    --json
"""


@pytest.fixture
def trace(checkout: Path) -> Path:
    """The shipped trace in Mooncake's layout."""
    return checkout / "examples" / "traces" / "chat_mooncake.jsonl"


@pytest.mark.parametrize("version", ["", "--backend-version 0.19.0"])
@pytest.mark.parametrize("layout", ["", "--trace-format mooncake"])
def test_simulate_a_trace(
    version: str, layout: str, trace: Path, dynosim: Callable[..., Any], tmp_path: Path
) -> None:
    answer = dynosim(*shlex.split(SIMULATE.format(version=version, trace=trace, format=layout)))
    assert answer.code == 0, answer.err
    result = json.loads((tmp_path / "out.json").read_text())
    rows = (tmp_path / "out.requests.jsonl").read_text().splitlines()
    assert result["num_prompts"] == result["completed"] == len(rows) == 600
    assert result["dynosim"]["deployment"]["block_size"] == 512


@pytest.mark.parametrize("pacing", ["--request-rate 4", "--max-concurrency 8"])
@pytest.mark.parametrize(
    "lengths", ["--isl 256 --osl 16", "--random-input-len 256 --random-output-len 16"]
)
def test_simulate_synthetic_load(
    pacing: str, lengths: str, dynosim: Callable[..., Any], tmp_path: Path
) -> None:
    words = f"simulate --model Qwen/Qwen3-32B --gpu h200_sxm {lengths} {pacing} --num-prompts 50"
    answer = dynosim(*shlex.split(words), "--json", "out.json")
    assert answer.code == 0, answer.err
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["total_input_tokens"] == 50 * 256
    assert result["total_output_tokens"] == 50 * 16
    assert ("closed loop" in answer.out) == ("concurrency" in pacing)


@pytest.mark.parametrize("extra", ["", "--pipeline-parallel-size 2", "--kv-cache-dtype fp8"])
def test_memory(extra: str, dynosim: Callable[..., Any]) -> None:
    answer = dynosim(*shlex.split(MEMORY.format(extra=extra)))
    assert answer.code == 0, answer.err
    plan = json.loads(answer.out)
    assert plan["feasible"] is True
    assert plan["kv_cache_tokens"] > 32768
    assert plan["max_concurrency"] == pytest.approx(plan["kv_cache_tokens"] / 32768, rel=0.01)
    assert plan["breakdown_bytes"]["weights"] > 10e9


def test_underscores_are_hyphens(dynosim: Callable[..., Any]) -> None:
    words = shlex.split(MEMORY.format(extra=""))
    spelt = [w[:2] + w[2:].replace("-", "_") if w.startswith("--") else w for w in words]
    assert spelt != words
    assert dynosim(*spelt) == dynosim(*words)


def test_short_flags(dynosim: Callable[..., Any]) -> None:
    long = ("--tensor-parallel-size", "2", "--pipeline-parallel-size", "2")
    words = ("memory", "--model", "Qwen/Qwen3-32B", "--gpu", "h200_sxm")
    assert dynosim(*words, "-tp", "2", "-pp=2") == dynosim(*words, *long)


def test_search_writes_a_frontier(
    checkout: Path, dynosim: Callable[..., Any], tmp_path: Path
) -> None:
    space = checkout / "examples" / "quickstart" / "space.yaml"
    assert [x for x in space.read_text().splitlines() if x.startswith("model:")]
    answer = dynosim(
        *("search", "--space", space, "--output-dir", "run", "--n-trials", "6", "--workers", "1")
    )
    assert answer.code == 0, answer.err
    assert (tmp_path / "run" / "frontier.csv").read_text().count("\n") >= 2
    assert (tmp_path / "run" / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert "knee" in answer.out or "cheapest" in answer.out


def test_simulating_a_candidate_of_a_search_gives_the_figures_of_its_trial(
    checkout: Path, dynosim: Callable[..., Any], tmp_path: Path
) -> None:
    space = checkout / "examples" / "quickstart" / "space.yaml"
    assert dynosim("search", space, "-o", "run", "--n-trials", "24", "--workers", "1").code == 0
    with (tmp_path / "run" / "frontier.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    (candidate,) = (tmp_path / "run" / "candidates").glob(f"*{row['number']}.yaml")
    assert dynosim("simulate", candidate, "--json", "out.json").code == 0
    result = json.loads((tmp_path / "out.json").read_text())
    figures = result["dynosim"]["metrics"] | result
    for name in ("output_tok_s_per_gpu", "output_tok_s_per_user", "p99_ttft_ms", "duration"):
        assert figures[name] == pytest.approx(float(row[name]), rel=1e-11)
