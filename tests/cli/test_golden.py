"""What the commands print, byte for byte.

A change of figures or wording shows here as a difference to read; to accept it, run these tests
with DYNOSIM_UPDATE_GOLDEN=1 and commit the new files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "DYNOSIM_UPDATE_GOLDEN"
ENGINE = "--backend vllm --backend-version 0.19.0"

COMMANDS = {
    "simulate_what_if": "simulate EXAMPLES/bottleneck/long_answers.yaml --what-if",
    "simulate_kv_tiers": "simulate EXAMPLES/kv_tiers/host_memory.yaml",
    "simulate_sessions": "simulate EXAMPLES/clients/chat_sessions.yaml",
    "validate": "validate --data MEASURED --jobs 1",
    "list_gpus": "list gpus",
    "list_models_qwen3_32b": "list models qwen3-32b",
    "list_backends": "list backends",
    "memory_fits": f"memory --model Qwen/Qwen3-32B --gpu h100 -tp 2 {ENGINE}",
    "memory_fits_json": f"memory --model Qwen/Qwen3-32B --gpu h100 -tp 2 {ENGINE} --json",
    "memory_too_large": f"memory --model meta-llama/Llama-3.1-70B-Instruct --gpu h100 {ENGINE}",
    "memory_uneven_heads": f"memory --model Qwen/Qwen3-14B --gpu h100 -tp 3 {ENGINE}",
    "simulate_trace": f"simulate --model Qwen/Qwen3-32B --gpu h200 -tp 2 --replicas 2 {ENGINE} "
    "--trace TRACE --goodput ttft:500 tpot:50",
    "simulate_closed_loop": f"simulate --model Qwen/Qwen3-8B --gpu h100 {ENGINE} --isl 1024 "
    "--osl 128 --max-concurrency 16 --num-prompts 100",
    "simulate_two_pools": "simulate EXAMPLES/disaggregation/deployment.yaml --calibration none",
    "capacity": f"capacity --model Qwen/Qwen3-8B --gpu h100 {ENGINE} --isl 1024 --osl 128 "
    "--random-range-ratio 0.3 --slo ttft:300 tpot:20 --seeds 2",
    "capacity_rate": f"capacity --model Qwen/Qwen3-8B --gpu h100 {ENGINE} --isl 1024 --osl 128 "
    "--slo p99_ttft:300 --of rate --seeds 1 --think-time 10",
    "capacity_none": f"capacity --model Qwen/Qwen3-8B --gpu h100 {ENGINE} --slo e2el:1 --seeds 1",
    "export_vllm": f"export --model Qwen/Qwen3-32B --gpu h100 -tp 2 --replicas 3 {ENGINE} "
    "--to vllm --max-num-seqs 64 --no-enable-prefix-caching",
    "export_aiperf": f"export --model Qwen/Qwen3-32B --gpu h100 -tp 2 {ENGINE} --to aiperf "
    "--isl 2000 --osl 300 --max-concurrency 32 --goodput ttft:500",
    "explain_stack": "explain EXAMPLES/claims/stack.yaml",
    "explain_claim": "explain EXAMPLES/claims/h200_fp8_vs_a100_fp16_128_128.yaml",
    "plan": "plan EXAMPLES/plan/space.yaml --demand-curve EXAMPLES/plan/day.csv",
    "plan_infeasible": "plan EXAMPLES/plan/space.yaml --demand 50 --slo ttft:5",
    "simulate_kv_aware": f"simulate EXAMPLES/routing/kv_aware.yaml {ENGINE}",
    "simulate_prefix_hash": f"simulate EXAMPLES/routing/prefix_hash.yaml {ENGINE}",
    "simulate_central_queue": f"simulate EXAMPLES/routing/central_queue.yaml {ENGINE}",
    "simulate_shed": f"simulate EXAMPLES/routing/shed.yaml {ENGINE}",
    "simulate_overload": f"simulate --model Qwen/Qwen3-8B --gpu l40s {ENGINE} --isl 2048 "
    "--osl 512 --request-rate 20 --num-prompts 400 --random-range-ratio 0.5 --seed 7",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_output_is_as_committed(name: str, dynosim: Callable[..., Any], checkout: Path) -> None:
    trace = str(checkout / "examples" / "traces" / "chat_mooncake.jsonl")
    measured = str(checkout / "tests" / "cli" / "measured")
    places = {"TRACE": trace, "MEASURED": measured, "EXAMPLES": str(checkout / "examples")}
    words = COMMANDS[name]
    for place, path in places.items():
        words = words.replace(place, path)
    answer = dynosim(*words.split())
    assert answer.code == 0, answer.err
    text = answer.out + (f"--- stderr\n{answer.err}" if answer.err else "")
    file = GOLDEN / f"{name}.txt"
    if os.environ.get(UPDATE):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"accept with {UPDATE}=1"


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.txt")), ids=lambda file: file.stem)
def test_every_committed_output_has_its_command(file: Path) -> None:
    assert file.stem in COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_output_fits_a_screen(name: str) -> None:
    lines = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 45
