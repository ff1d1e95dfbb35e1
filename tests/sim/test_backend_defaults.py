"""What a backend does where the user says nothing, seen in runs."""

from __future__ import annotations

from typing import Any

from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import Simulation, simulate
from workloads import workload


def run(backend: str, **options: Any) -> Simulation:
    deployment = Deployment(model="Qwen/Qwen3-8B", gpu="H100", backend=backend, **options)
    return simulate(deployment, workload([0.0, 0.0], [9000, 500], [20, 20]))


def test_tensorrt_llm_refuses_a_prompt_that_it_may_not_split() -> None:
    simulation = run("trtllm")
    assert simulation.result.completed.tolist() == [False, True]
    assert "longer than max_num_batched_tokens 8,192" in simulation.warnings[-1]
    assert "enable_chunked_prefill is off" in simulation.warnings[-1]


def test_with_chunks_or_a_larger_step_it_takes_the_prompt() -> None:
    for options in ({"enable_chunked_prefill": True}, {"max_num_batched_tokens": 9000}):
        assert run("trtllm", **options).result.completed.all()


def test_what_may_be_computed_again_must_fit_a_step_as_well() -> None:
    # Paused with 19 tokens of its answer, the prompt of 9,000 would have to fit as 9,019.
    options = {"scheduling_policy": "max_utilization", "max_num_batched_tokens": 9000}
    assert run("trtllm", **options).result.completed.tolist() == [False, True]


def test_the_others_split_prompts() -> None:
    for backend in ("vllm", "sglang"):
        assert run(backend).result.completed.all()


def test_kv_blocks_are_the_backends_own() -> None:
    sizes = {b: run(b).engine.block_size for b in ("vllm", "sglang", "trtllm", "static")}
    assert sizes == {"vllm": 16, "sglang": 1, "trtllm": 32, "static": 1}
