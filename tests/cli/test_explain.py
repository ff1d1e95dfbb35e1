"""``dynosim explain``: its two ways to name a pair, and mistakes in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHARED = "model: Qwen/Qwen3-8B\nbackend_version: 0.19.0\n"
LOAD = "workload: {isl: 256, osl: 32, num_prompts: 64}\nslos: {tpot: {p95: 15}, ttft: {p95: 800}}\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_two_files_and_one_file_of_both_agree(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    one = write(tmp_path / "a.yaml", f"{SHARED}gpu: a100\n{LOAD}")
    two = write(tmp_path / "b.yaml", f"{SHARED}gpu: h100\n")
    both = f"{SHARED}{LOAD}baseline: {{gpu: a100}}\ntuned: {{gpu: h100}}\n"
    answers = [
        dynosim("explain", one, two, "--json"),
        dynosim("explain", write(tmp_path / "both.yaml", both), "--json"),
    ]
    assert [a.code for a in answers] == [0, 0], answers[0].err
    first, second = (json.loads(a.out) for a in answers)
    assert first == second
    assert first["factor"] > 1
    assert first["narrowest_first"] == "infrastructure"


def test_the_waterfall_is_drawn(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    both = f"{SHARED}{LOAD}baseline: {{gpu: a100}}\ntuned: {{gpu: h100}}\n"
    plot = tmp_path / "waterfall.png"
    answer = dynosim("explain", write(tmp_path / "both.yaml", both), "--plot", plot)
    assert answer.code == 0, answer.err
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_single_file_without_sections_says_what_is_missing(
    dynosim: Callable[..., Any], tmp_path: Path
) -> None:
    answer = dynosim("explain", write(tmp_path / "a.yaml", f"{SHARED}gpu: a100\n"))
    assert answer.code == 2
    assert "baseline" in answer.err
    assert "a second file" in answer.err


def test_a_mistake_in_a_section_names_its_line(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    text = f"{SHARED}{LOAD}baseline:\n  gpu: a100\ntuned:\n  gpu: h1000\n"
    answer = dynosim("explain", write(tmp_path / "both.yaml", text))
    assert answer.code == 2
    assert "both.yaml:8" in answer.err
    assert "h100" in answer.err


def test_workloads_that_differ_are_refused(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    one = write(tmp_path / "a.yaml", f"{SHARED}gpu: a100\n{LOAD}")
    two = write(tmp_path / "b.yaml", f"{SHARED}gpu: h100\nworkload: {{isl: 9}}\n")
    answer = dynosim("explain", one, two)
    assert answer.code == 2
    assert "its workload differs" in " ".join(answer.err.split())


def test_users_need_a_limit(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    both = f"{SHARED}baseline: {{gpu: a100}}\ntuned: {{gpu: h100}}\n"
    answer = dynosim("explain", write(tmp_path / "both.yaml", both))
    assert answer.code == 2
    assert "--slo" in answer.err
