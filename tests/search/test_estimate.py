"""The mean-field estimate against what it stands for: the simulation, and queueing theory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dynosim.search.estimate.engine_curve import EngineCurve
from dynosim.search.estimate.estimate import Estimates, estimate
from dynosim.search.estimate.load import Load, summarize_load
from dynosim.search.estimate.steady_state import steady_state
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec

OPEN = WorkloadSpec(
    random_input_len=900, random_output_len=150, random_range_ratio=0.5, request_rate=6.0,
    num_prompts=400,
)  # fmt: skip


def constant_engine(step_s: float, prefill_s: float, most: int) -> EngineCurve:
    """An engine whose steps take equally long, however many decode."""
    ones = np.ones(most + 1)
    return EngineCurve(
        decode_s=step_s * ones,
        prefill_s=prefill_s * ones,
        gap_s=(step_s + prefill_s) * ones,
        mean_answer_s=prefill_s * ones,
        long_answer_s=prefill_s * ones,
    )


def load(spec: WorkloadSpec = OPEN) -> Load:
    return summarize_load(build_workload(spec))


def test_a_closed_loop_turns_round_as_little_says() -> None:
    """8 sequences of 100 tokens, 10 ms steps, 20 ms a prompt: 8 / (1 s + 8 × 20 ms) a second."""
    closed = load(
        WorkloadSpec(random_input_len=50, random_output_len=100, max_concurrency=8, num_prompts=50)
    )
    state = steady_state(
        constant_engine(0.01, 0.02, 64), closed, slots=np.array([64.0]), replicas=np.array([1.0])
    )
    assert state.rate_req_s == pytest.approx(8 / (1.0 + 8 * 0.02))
    # Prefill takes rate × 20 ms of the time, and decodes wait meanwhile.
    assert state.tpot_s == pytest.approx(0.01 / (1 - state.rate_req_s * 0.02))


def test_an_open_loop_beyond_the_slots_serves_what_they_can_and_its_queue_grows() -> None:
    """Two slots of 150 tokens at 10 ms: 2 / 1.5 s; 6 a second arrive."""
    state = steady_state(
        constant_engine(0.01, 0.0, 64), load(), slots=np.array([2.0]), replicas=np.array([1.0])
    )
    served = 2 / (load().output_tokens * 0.01)
    assert state.rate_req_s == pytest.approx(served)
    assert state.use == pytest.approx(load().rate_req_s / served)


def ranks(values: Any) -> Any:
    return np.argsort(np.argsort(values))


def estimated_and_simulated(spec: WorkloadSpec, metric: str) -> tuple[Any, Any]:
    workload = build_workload(spec)
    candidates = [
        Deployment(
            model="Qwen/Qwen3-8B", gpu="h100", backend=backend, tensor_parallel_size=tp,
            max_num_seqs=seqs, max_num_batched_tokens=budget, enable_chunked_prefill=True,
        )
        for backend in ("vllm", "sglang", "trtllm")
        for tp in (1, 2, 4)
        for seqs in (8, 64)
        for budget in (512, 4096)
    ]  # fmt: skip
    found: Estimates = estimate(candidates, workload)
    simulated = [simulate(c, workload).metrics()[metric] for c in candidates]
    return found.metrics[metric], np.array(simulated)


@pytest.mark.parametrize(
    ("metric", "within", "rank_correlation"),
    [("output_tok_s_per_gpu", 1.3, 0.85), ("mean_tpot_ms", 1.3, 0.95), ("mean_ttft_ms", 3.0, 0.85)],
)
@pytest.mark.parametrize("concurrency", [None, 32])
def test_the_estimate_ranks_candidates_as_the_simulation_does(
    metric: str, within: float, rank_correlation: float, concurrency: int | None
) -> None:
    spec = WorkloadSpec(
        random_input_len=900, random_output_len=150, random_range_ratio=0.5, num_prompts=300,
        request_rate=None if concurrency else 6.0, max_concurrency=concurrency,
    )  # fmt: skip
    guess, truth = estimated_and_simulated(spec, metric)
    assert np.corrcoef(ranks(guess), ranks(truth))[0, 1] > rank_correlation
    assert np.median(np.abs(np.log(guess / truth))) < np.log(within)


def test_replicas_share_the_load_and_routers_change_no_estimate() -> None:
    workload = build_workload(OPEN)
    one = Deployment(model="Qwen/Qwen3-8B", gpu="h100", max_num_seqs=16)
    several = [
        Deployment(**{**vars(one), "replicas": n, "router": r})
        for n, r in ((1, "random"), (2, "random"), (4, "round_robin"))
    ]
    tpot = estimate(several, workload).metrics["mean_tpot_ms"]
    assert tpot[0] > tpot[1] > tpot[2]
    assert tpot[0] == estimate([one], workload).metrics["mean_tpot_ms"][0]


def test_ranks_of_a_dense_model_are_estimated_as_replicas() -> None:
    base = {"model": "Qwen/Qwen3-8B", "gpu": "h100_sxm", "max_model_len": 4096}
    workload = build_workload(OPEN)
    ranks, replicas = (
        estimate([Deployment(**base, **{by: 4})], workload).metrics  # type: ignore[arg-type]
        for by in ("data_parallel_size", "replicas")
    )
    for name, values in ranks.items():
        np.testing.assert_array_equal(values, replicas[name], name)


@pytest.mark.parametrize("backend", ["vllm", "sglang"])
def test_an_engine_that_speculates_is_estimated_by_its_tokens(backend: str) -> None:
    load = build_workload(
        WorkloadSpec(
            random_input_len=300, random_output_len=200, max_concurrency=24, num_prompts=120
        )
    )
    deployment = Deployment(
        model="meta-llama/Llama-3.1-8B-Instruct",
        gpu="h100",
        backend=backend,
        speculative_method="eagle3",
        num_speculative_tokens=3,
    )
    found = estimate([deployment], load).metrics
    simulated = simulate(deployment, load).metrics()
    for name in ("output_throughput", "mean_tpot_ms"):
        assert found[name][0] == pytest.approx(simulated[name], rel=0.2), name


def test_between_two_tokens_comes_one_chunk_and_with_a_prefill_pool_none() -> None:
    spec = WorkloadSpec(
        random_input_len=4000, random_output_len=200, request_rate=2.0, num_prompts=100
    )
    load = build_workload(spec)
    one = Deployment(model="Qwen/Qwen3-32B", gpu="h200_sxm", max_num_batched_tokens=1024)
    pools = replace(one, prefill_replicas=1)
    tails, tpots, prefills = (
        estimate([one, pools], load).metrics[name]
        for name in ("p99_itl_ms", "mean_tpot_ms", "p99_prefill_ms")
    )
    # A chunk of 1,024 of 4,000 tokens.
    assert tpots[0] < tails[0] < 0.4 * prefills[0]
    assert tails[1] == pytest.approx(tpots[1], rel=0.01)
