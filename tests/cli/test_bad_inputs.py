"""A mistake ends in one screen that says where it is, what was found and what is allowed.

The mistakes are those of issue reports about tools of this kind: typing errors in YAML, values out
of range or of the wrong type, unknown names, missing, empty and binary files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

SPACE = "model: Qwen/Qwen3-8B\ngpu: h100\nworkload: {isl: 100, osl: 10, num_prompts: 20}\n"
ENGINE = ("--model", "Qwen/Qwen3-8B", "--gpu", "h100")
SHORT_LOAD = ("--isl", "100", "--osl", "10", "--num-prompts", "20")
ROW = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'


def space(text: str, *expected: str, base: str = SPACE) -> Any:
    """A search whose space holds one more line; ``expected`` are parts of the answer."""
    words = ("search", "--space", "space.yaml", "--output-dir", "out")
    return words, {"space.yaml": base + text}, expected


def flags(*words: str, expected: tuple[str, ...], files: Mapping[str, str | bytes] = {}) -> Any:
    """A simulation with wrong flags."""
    return ("simulate", *words, "--json", "out.json"), files, expected


MISTAKES: dict[str, Any] = {
    # The file itself.
    "missing file": (
        ("search", "--space", "spce.yaml"),
        {"space.yaml": SPACE},
        ("spce.yaml", "No such file"),
    ),
    "folder instead of a file": (("search", "--space", "."), {}, (".", "cannot be read")),
    "binary file": (
        ("search", "--space", "space.yaml"),
        {"space.yaml": b"\x89PNG\r\n\x1a\n\x00\xff\xfe"},
        ("space.yaml", "not a text file", "YAML"),
    ),
    "empty file": (
        ("search", "--space", "space.yaml"),
        {"space.yaml": ""},
        ("space.yaml", "empty file", "a mapping"),
    ),
    "list instead of keys": (
        ("simulate", "deployment.yaml"),
        {"deployment.yaml": "- model: x\n"},
        ("deployment.yaml", "list", "a mapping"),
    ),
    "broken YAML": space("replicas: [1, 2\n", "space.yaml:", "not valid YAML"),
    "tab in YAML": space("slos:\n\tttft: 5\n", "space.yaml:5", "not valid YAML"),
    "key twice": space("gpu: a100\n", "space.yaml:4: gpu", "twice"),
    # Keys and values of a space.
    "misspelt key": space(
        "tensor_paralel_size: [1, 2]\n",
        "space.yaml:4: tensor_paralel_size",
        "nearest: tensor_parallel_size",
        "max_num_seqs",
    ),
    "misspelt key in a section": space(
        "slos: {tfft: 500}\n", "slos.tfft", "nearest: ttft", "allowed: ttft, tpot, itl, e2el"
    ),
    "negative value": space("replicas: [1, -2]\n", "replicas[1]", "-2", "a whole number ≥ 1"),
    "zero": space("tensor_parallel_size: 0\n", "tensor_parallel_size", "found 0", "≥ 1"),
    "share above one": space(
        "gpu_memory_utilization: [0.9, 1.5]\n", "gpu_memory_utilization[1]", "1.5", "≤ 1"
    ),
    "not a number": space(
        "gpu_memory_utilization: .nan\n", "gpu_memory_utilization", "nan", "a number > 0"
    ),
    "text for a number": space(
        "max_num_seqs: many\n", "space.yaml:4: max_num_seqs", "'many'", "a whole number"
    ),
    "true for a number": space("replicas: true\n", "replicas", "True", "a whole number"),
    "fraction of a GPU": space("tensor_parallel_size: 1.5\n", "found 1.5", "a whole number"),
    "unknown choice": space(
        "kv_cache_dtype: fp9\n", "kv_cache_dtype", "'fp9'", "auto, bfloat16, fp8"
    ),
    "empty list": space("replicas: []\n", "replicas", "empty list", "one value, a list"),
    "range upside down": space("replicas: {min: 8, max: 2}\n", "replicas", "8", "2"),
    "step of zero": space("replicas: {min: 1, max: 8, step: 0}\n", "replicas.step", "≥ 1"),
    "unknown objective": space(
        "objectives: [thruput]\n", "objectives[0]", "'thruput'", "output_throughput"
    ),
    "negative limit": space("slos: {ttft: -5}\n", "slos.ttft", "-5", "a number > 0"),
    "no trials": space("n_trials: 0\n", "n_trials", "found 0", "a whole number ≥ 1"),
    # Names.
    "unknown GPU": space("", "gpu", "h1000", "h100", base=SPACE.replace("gpu: h100", "gpu: h1000")),
    "unknown model": space(
        "", "model", "Qwen3-8X", "Qwen/Qwen3-8B", base=SPACE.replace("Qwen/Qwen3-8B", "Qwen3-8X")
    ),
    "unknown backend": space(
        "backend: [vllm, vlm]\n", "backend", "'vlm'", "sglang, static, trtllm, vllm"
    ),
    "unknown version": space("backend_version: 0.1.0\n", "backend_version", "0.1.0", "0.9.0"),
    "unknown router": space(
        "router: round_robbin\n", "router", "round_robbin", "least_outstanding"
    ),
    # The command line.
    "no model": flags("--gpu", "h100", expected=("--model", "missing", "dynosim list models")),
    "unknown command": (("simulat",), {}, ("'simulat'", "nearest: simulate", "memory")),
    "unknown option": flags(
        *ENGINE,
        *("--tensor-paralel-size", "2"),
        expected=("--tensor-paralel-size", "nearest: --tensor-parallel-size"),
    ),
    "flag without its value": flags(*ENGINE, "--replicas", expected=("--replicas", "value")),
    "flag out of range": flags(
        *ENGINE, "-tp", "-2", expected=("--tensor-parallel-size", "found -2", "≥ 1")
    ),
    "flag of the wrong type": flags(
        *ENGINE, "--replicas", "two", expected=("--replicas", "'two'", "a whole number ≥ 1")
    ),
    "rate that is not a number": flags(
        *ENGINE, "--request-rate", "nan", expected=("--request-rate", "nan", "a number > 0")
    ),
    "goodput in another notation": flags(
        *ENGINE, "--goodput", "ttft=500", expected=("--goodput", "'ttft=500'", "ttft, tpot, e2el")
    ),
    "parallelism that does not divide": flags(
        *(*ENGINE, *SHORT_LOAD, "-tp", "3"),
        expected=("tensor_parallel_size 3", "32 attention heads", "would fit"),
    ),
    "model that does not fit": flags(
        *("--model", "meta-llama/Llama-3.1-70B-Instruct", "--gpu", "l40s"),
        *SHORT_LOAD,
        expected=("memory", "GiB", "tensor-parallel-size"),
    ),
    "several values": (
        ("simulate", "deployment.yaml"),
        {"deployment.yaml": SPACE + "replicas: [1, 2]\n"},
        ("deployment.yaml:4: replicas", "2 values", "one value", "dynosim search"),
    ),
    "output in no folder": (
        ("simulate", *ENGINE, *SHORT_LOAD, "--json", "nowhere/out.json"),
        {},
        ("--json", "nowhere", "mkdir"),
    ),
    # Traces.
    "missing trace": flags(
        *ENGINE, "--trace", "trce.jsonl", expected=("--trace", "trce.jsonl", "no such file")
    ),
    "empty trace": flags(
        *(*ENGINE, "--trace", "trace.jsonl"),
        files={"trace.jsonl": ""},
        expected=("trace.jsonl", "empty"),
    ),
    "binary trace": flags(
        *(*ENGINE, "--trace", "trace.jsonl"),
        files={"trace.jsonl": b"\x00\x01\x02\xff" * 50},
        expected=("trace.jsonl", "not a text file", "JSON lines or CSV"),
    ),
    "broken row": flags(
        *(*ENGINE, "--trace", "trace.jsonl", "--trace-format", "mooncake"),
        files={"trace.jsonl": ROW + '{"timestamp": 1, "input_len\n'},
        expected=("trace.jsonl:2",),
    ),
    "negative length": flags(
        *(*ENGINE, "--trace", "trace.jsonl"),
        files={"trace.jsonl": ROW + ROW.replace("600", "-600")},
        expected=("trace.jsonl:2", "input_length", "-600"),
    ),
    "unknown format": flags(
        *(*ENGINE, "--trace", "trace.jsonl", "--trace-format", "moonkake"),
        files={"trace.jsonl": ROW},
        expected=("moonkake", "mooncake"),
    ),
    "trace and lengths together": flags(
        *(*ENGINE, "--trace", "trace.jsonl", "--isl", "100"),
        files={"trace.jsonl": ROW},
        expected=("--random-input-len", "trace", "exclude"),
    ),
}


def test_there_are_at_least_twenty_five() -> None:
    assert len(MISTAKES) >= 25


@pytest.mark.parametrize("name", MISTAKES)
def test_one_screen_says_what_is_wrong(
    name: str, dynosim: Callable[..., Any], tmp_path: Path
) -> None:
    words, files, expected = MISTAKES[name]
    kept = {"out.json": b"an earlier result", "out/frontier.csv": b"an earlier frontier"}
    before = {**{k: v if isinstance(v, bytes) else v.encode() for k, v in files.items()}, **kept}
    for file, content in before.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(content)

    answer = dynosim(*words)

    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert "Traceback" not in answer.err
    assert len(answer.err.splitlines()) <= 22
    assert max(map(len, answer.err.splitlines())) <= 100
    unwrapped = " ".join(answer.err.split())
    assert [part for part in expected if part not in unwrapped] == [], answer.err
    after = {
        p.relative_to(tmp_path).as_posix(): p.read_bytes()
        for p in tmp_path.rglob("*")
        if p.is_file()
    }
    assert after == before
