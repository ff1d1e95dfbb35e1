"""Flags override the file, leave the rest of it alone, and read numbers as vLLM does."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynosim.flags import given
from dynosim.question import parse_goodput, read_question
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

SIMULATE = shlex.split("simulate --model Qwen/Qwen3-8B --gpu h100 --isl 64 --osl 4 --num-prompts 8")
FILE = """
model: Qwen/Qwen3-8B
gpu: h100
tp: 2
replicas: 3
seed: 5
workload: {isl: 100, osl: 10, num_prompts: 20}
slos: {ttft: {p95: 800}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A deployment file, with aliases as users write them."""
    path = tmp_path / "deployment.yaml"
    path.write_text(FILE)
    return str(path)


def test_file_alone(file: str) -> None:
    question = read_question(file, {})
    assert question.deployment.tensor_parallel_size == 2
    assert question.deployment.replicas == 3
    assert question.workload.random_input_len == 100
    assert question.goodput_ms == {"ttft": 800}
    assert question.seed == 5


def test_flags_override_the_file_under_any_spelling(file: str) -> None:
    flags = {"tensor_parallel_size": "4", "random_input_len": "200", "seed": "9"}
    question = read_question(file, flags, goodput=("tpot:50",))
    assert question.deployment.tensor_parallel_size == 4
    assert question.deployment.replicas == 3
    assert question.workload.random_input_len == 200
    assert question.workload.random_output_len == 10
    assert question.goodput_ms == {"tpot": 50}
    assert (question.seed, question.workload.seed) == (9, 9)


def test_paths_in_a_flag_are_relative_to_where_the_user_stands(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "trace.jsonl").write_text(
        '{"timestamp": 0, "input_length": 6, "output_length": 5, "hash_ids": [0]}\n'
    )
    monkeypatch.chdir(elsewhere)
    Path(file).write_text("model: Qwen/Qwen3-8B\ngpu: h100\n")
    question = read_question(file, {"trace": "trace.jsonl"})
    assert Path(str(question.workload.trace)).samefile(elsewhere / "trace.jsonl")


@pytest.mark.parametrize(
    ("text", "tokens"), [("32768", 32768), ("32k", 32_000), ("32K", 32_768), ("1.5k", 1500)]
)
def test_short_numbers_are_vllms(text: str, tokens: int) -> None:
    assert given({"max_model_len": text}, Deployment) == {"max_model_len": tokens}


@pytest.mark.parametrize("text", ["32x", "k", "1.0001k", "two", ""])
def test_what_is_no_number_stays_text(text: str) -> None:
    assert given({"max_model_len": text}, Deployment) == {"max_model_len": text}


def test_rate_may_be_infinite(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    assert given({"request_rate": "inf"}, WorkloadSpec) == {"request_rate": float("inf")}
    answer = dynosim(*SIMULATE, "--request-rate", "inf", "--json", "out.json")
    assert answer.code == 0, answer.err
    assert "open loop, all at once" in answer.out
    assert json.loads((tmp_path / "out.json").read_text())["request_rate"] == "inf"


def test_prefix_caching_can_be_switched_off(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    shared = ("--random-prefix-len", "512", "--json", "out.json")

    def hit_rate(*more: str) -> float:
        assert dynosim(*SIMULATE, *shared, *more).code == 0
        result = json.loads((tmp_path / "out.json").read_text())
        return float(result["dynosim"]["metrics"]["prefix_hit_rate"])

    assert hit_rate("--request-rate", "1") > 0.7
    assert hit_rate("--request-rate", "1", "--no-enable-prefix-caching") == 0


def test_goodput_limits() -> None:
    assert parse_goodput(("ttft:500", "tpot:50.5")) == {"ttft": 500, "tpot": 50.5}


def test_refusing_every_request_is_told_with_dashes(dynosim: Callable[..., Any]) -> None:
    answer = dynosim(*SIMULATE, "--max-model-len", "60")
    assert answer.code == 0
    assert "nan" not in answer.out
    assert "8 request(s) longer than max_model_len 60 were refused" in answer.err
    assert dynosim(*SIMULATE, "--max-model-len", "60", "--quiet").err == ""
