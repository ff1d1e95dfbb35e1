"""Five questions of users, answered by the command that ``docs/questions.md`` gives."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KV_BYTES = 327_680
"""Llama 70B in bf16: 2 (K, V) x 80 layers x 8 KV heads x 128 x 2 bytes."""
GIB = 2**30
LONG = "--model meta-llama/Llama-3.1-70B-Instruct --gpu h100 --max-model-len 131072"
FP8 = "--quantization fp8 --kv-cache-dtype fp8"

Ask = Callable[[str], dict[str, Any]]


def commands(checkout: Path) -> list[str]:
    page = (checkout / "docs" / "questions.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)
    return [block.replace("\\\n", " ").strip() for block in blocks]


@pytest.fixture
def ask(dynosim: Callable[..., Any], checkout: Path) -> Ask:
    def run(words: str) -> dict[str, Any]:
        placed = words.replace("examples/", f"{checkout}/examples/")
        answer = dynosim(*shlex.split(placed), "--json")
        assert answer.code == 0, answer.err
        found: dict[str, Any] = json.loads(answer.out)
        return found

    return run


def test_there_are_five_and_every_command_runs(checkout: Path, ask: Ask) -> None:
    found = commands(checkout)
    assert len(found) == 5
    assert all(ask(command.removeprefix("dynosim ")) for command in found)


def test_70b_at_128k_for_five_users(ask: Ask) -> None:
    eight, four = ask(f"memory {LONG} -tp 8"), ask(f"memory {LONG} -tp 4")
    assert 8 * eight["kv_bytes_per_token"] == KV_BYTES
    assert KV_BYTES * 131_072 == 40 * GIB
    assert 4 * four["breakdown_bytes"]["weights"] / GIB == pytest.approx(131.4, abs=0.2)
    assert eight["max_concurrency"] >= 5 > four["max_concurrency"]
    small = ask(f"memory {LONG} -tp 4 {FP8}")
    assert small["max_concurrency"] >= 5
    assert ask(f"memory {LONG} -tp 2 {FP8}")["max_concurrency"] < 5


def test_kv_smaller_than_max_model_len_says_which_and_by_how_much(ask: Ask) -> None:
    found = ask("memory --model meta-llama/Llama-3.1-70B-Instruct --gpu h100 -tp 2")
    assert not found["feasible"]
    tokens = found["kv_cache_tokens"]
    assert f"{tokens:,} tokens" in found["reason"]
    assert "131,072" in found["reason"]
    length = int(re.search(r"--max-model-len (\d+)", found["hint"])[1])  # type: ignore[index]
    assert length <= tokens
    fits = "memory --model meta-llama/Llama-3.1-70B-Instruct --gpu h100 -tp 2 --max-model-len"
    assert ask(f"{fits} {length}")["feasible"]
    assert not ask(f"{fits} {length + 16}")["feasible"]


def test_tensor_parallelism_over_pcie_gives_less_per_gpu(ask: Ask, tmp_path: Path) -> None:
    pcie = ask("explain examples/questions/tp_over_pcie.yaml")["factor"]
    assert pcie < 0.5


def test_nvlink_loses_less_than_pcie(ask: Ask, checkout: Path, tmp_path: Path) -> None:
    file = checkout / "examples" / "questions" / "tp_over_pcie.yaml"
    text = file.read_text(encoding="utf-8").replace("gpu: l40s", "gpu: h100_sxm")
    (tmp_path / "nvlink.yaml").write_text(text, encoding="utf-8")
    nvlink = ask(f"explain {tmp_path}/nvlink.yaml")["factor"]
    assert ask("explain examples/questions/tp_over_pcie.yaml")["factor"] < nvlink < 1


def test_an_fp8_kv_cache_doubles_tokens_and_helps_where_they_limit(ask: Ask) -> None:
    engine = "memory --model meta-llama/Llama-3.1-8B-Instruct --gpu h100 --max-model-len 16384"
    half, full = ask(f"{engine} --kv-cache-dtype fp8"), ask(engine)
    assert half["kv_cache_tokens"] / full["kv_cache_tokens"] == pytest.approx(2, rel=1e-3)
    assert half["breakdown_bytes"]["weights"] == full["breakdown_bytes"]["weights"]
    long = ask("explain examples/questions/fp8_kv.yaml")["factor"]
    short = ask("explain examples/questions/fp8_kv_short.yaml")["factor"]
    assert long == pytest.approx(2, rel=0.15)
    assert 1.0 < short < 1.25


def test_a_second_gpu_speeds_one_stream_little(ask: Ask) -> None:
    per_gpu = ask("explain examples/questions/one_gpu_or_two.yaml")["factor"]
    assert 1.0 < 2 * per_gpu < 1.35
