"""What speculative decoding does to tokens, blocks and budgets: small cases by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.deployment import Deployment
from dynosim.sim.engine.drafting import Drafting
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.speculative_engine import SpeculativeEngine
from dynosim.sim.metrics import summarize, token_gaps_s
from dynosim.sim.result_files import bench_document, request_columns
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec
from speculative_timer import SpeculativeAffineTimer
from workloads import workload

ALL = Drafting(num_tokens=2, acceptance=(1.0, 1.0))
NONE = Drafting(num_tokens=2, acceptance=(0.0, 0.0))


def engine(drafting: Drafting, num_blocks: int = 1000, **limits: Any) -> SpeculativeEngine:
    limits = {"max_num_seqs": 8, "max_num_batched_tokens": 512} | limits
    timer = SpeculativeAffineTimer(query_tokens=drafting.query_tokens)
    return SpeculativeEngine(timer, EngineLimits(drafting=drafting, **limits), num_blocks)


def run_step(subject: SpeculativeEngine, now_s: float) -> float:
    end_s = subject.begin(now_s)
    assert end_s is not None
    subject.end()
    return end_s


# --- how many tokens --------------------------------------------------------------------------


def test_all_accepted_or_none() -> None:
    assert ALL.tokens(0, 1, 7).tolist() == [3, 3, 1]
    assert NONE.tokens(0, 1, 4).tolist() == [1, 1, 1, 1]


@given(
    request=st.integers(0, 10**6),
    emitted=st.integers(1, 10**5),
    wanted=st.integers(1, 500),
    rates=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8),
    seed=st.integers(0, 2**32),
)
def test_never_more_than_asked_for_and_never_fewer(
    request: int, emitted: int, wanted: int, rates: list[float], seed: int
) -> None:
    acceptance = tuple(np.cumprod(rates).tolist())
    drafting = Drafting(num_tokens=len(rates), acceptance=acceptance, seed=seed)
    tokens = drafting.tokens(request, emitted, wanted)
    assert tokens.sum() == wanted
    assert tokens.min() >= 1
    assert tokens.max() <= drafting.query_tokens
    assert np.array_equal(tokens, drafting.tokens(request, emitted, wanted))


def test_shares_of_accepted_drafts_are_those_asked_for() -> None:
    drafting = Drafting(num_tokens=3, acceptance=(0.73, 0.52, 0.35))
    tokens = np.concatenate([drafting.tokens(request, 1, 1000) for request in range(50)])
    for position, share in enumerate(drafting.acceptance, 2):
        assert (tokens >= position).mean() == pytest.approx(share, abs=0.01)


def test_a_higher_rate_never_accepts_fewer() -> None:
    low = Drafting(num_tokens=3, acceptance=(0.5, 0.25, 0.125))
    high = Drafting(num_tokens=3, acceptance=(0.6, 0.36, 0.216))
    for request in range(20):
        few, many = (d.tokens(request, 1, 100)[:20] for d in (low, high))
        assert (few <= many).all()


# --- budgets and blocks -----------------------------------------------------------------------


def test_a_decode_takes_its_drafts_of_the_budget() -> None:
    # Two sequences decode with 3 tokens each; of a budget of 10, a prompt gets 4.
    subject = engine(ALL, max_num_batched_tokens=10)
    for index in range(2):
        subject.waiting.append(Sequence(index, 5, 50, []))
    now_s = run_step(subject, 0.0)
    subject.waiting.append(Sequence(2, 20, 5, []))
    subject.begin(now_s)
    assert [(seq.index, tokens) for seq, tokens in subject.batch()] == [(0, 3), (1, 3), (2, 4)]


def test_who_finds_no_room_for_its_drafts_sits_the_step_out() -> None:
    # A budget of 4 verifies one sequence's 3 tokens; the other then catches up with one.
    subject = engine(NONE, max_num_batched_tokens=4)
    for index in range(2):
        subject.waiting.append(Sequence(index, 2, 50, []))
    now_s = run_step(subject, 0.0)
    subject.begin(now_s)
    assert [(seq.index, tokens) for seq, tokens in subject.batch()] == [(0, 3)]
    subject.end()
    subject.begin(now_s)
    assert [(seq.index, tokens) for seq, tokens in subject.batch()] == [(0, 3), (1, 1)]


@pytest.mark.parametrize(("lookahead", "blocks"), [(0, [3, 3, 4]), (2, [4, 4, 4])])
def test_slots_of_drafts_are_reserved_and_used_again(lookahead: int, blocks: list[int]) -> None:
    # A prompt of 20 tokens in blocks of 8. A verification of 3 needs 23 slots, and as all drafts
    # are refused, the next ones 24 and 25; with a lookahead of 2, 25 to 27.
    drafting = Drafting(num_tokens=2, acceptance=(0.0, 0.0), lookahead_tokens=lookahead)
    subject = engine(drafting, block_size=8, max_run=1)
    subject.waiting.append(Sequence(0, 20, 50, []))
    now_s = run_step(subject, 0.0)
    assert subject.kv.used_blocks == 3
    for expected in blocks:
        now_s = run_step(subject, now_s)
        assert subject.kv.used_blocks == expected


def test_reserved_slots_end_at_the_longest_context() -> None:
    drafting = Drafting(num_tokens=4, acceptance=(1.0,) * 4, lookahead_tokens=4, max_model_len=32)
    subject = engine(drafting, num_blocks=2)
    subject.waiting.append(Sequence(0, 20, 12, []))
    now_s = 0.0
    while (end_s := subject.begin(now_s)) is not None:
        assert subject.kv.used_blocks <= 2
        now_s = end_s
        subject.end()
    assert subject.log.verifications().tolist() == [[0, 11, 3]]


# --- what is reported -------------------------------------------------------------------------


def test_metrics_of_a_run_by_hand() -> None:
    # Steps of 10 ms; 1 token with the prompt, then 3, 3 and the last 2 of 3.
    clock = SpeculativeAffineTimer(
        query_tokens=3,
        base_s=0.010,
        per_token_s=0.0,
        per_pair_s=0.0,
        per_sequence_s=0.0,
        per_context_s=0.0,
    )
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=512, drafting=ALL)
    spec = ClusterSpec(timer=clock, limits=limits, num_blocks=64, max_model_len=1000)
    result = run_cluster(spec, workload([0.0], [10], [9]))
    metrics = summarize(result)
    assert metrics["mean_ttft_ms"] == pytest.approx(10.0)
    assert metrics["mean_e2el_ms"] == pytest.approx(40.0)
    # Time a token; and time between the chunks in which they arrive.
    assert metrics["mean_tpot_ms"] == pytest.approx(30.0 / 8)
    assert metrics["mean_itl_ms"] == pytest.approx(10.0)
    assert token_gaps_s(result).total == 3
    assert metrics["spec_decode_num_drafts"] == 3
    assert metrics["spec_decode_draft_tokens"] == 6
    assert metrics["spec_decode_accepted_tokens"] == 5
    assert metrics["spec_decode_acceptance_length"] == pytest.approx(8 / 3)


LOAD = WorkloadSpec(
    random_input_len=200, random_output_len=64, num_prompts=40, request_rate=20.0, seed=3
)
DEPLOYMENT: dict[str, Any] = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100"}


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_no_drafts_are_the_results_without_speculation(backend: str) -> None:
    load = build_workload(LOAD)
    plain = simulate(Deployment(**DEPLOYMENT, backend=backend), load)
    off = {"speculative_method": "eagle3", "num_speculative_tokens": 0}
    none = simulate(Deployment(**DEPLOYMENT, backend=backend, **off), load)
    assert plain.metrics() == pytest.approx(none.metrics(), nan_ok=True, rel=0, abs=0)
    columns, other = request_columns(plain.result), request_columns(none.result)
    assert all(np.array_equal(columns[k], other[k], equal_nan=True) for k in columns)


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_leaping_a_real_deployment_equals_stepping(backend: str) -> None:
    load = build_workload(LOAD)
    on = {"speculative_method": "eagle3", "num_speculative_tokens": 3}
    deployment = Deployment(**DEPLOYMENT, backend=backend, **on)
    leaping = simulate(deployment, load, seed=5)
    stepping = simulate(deployment, load, seed=5, leap=False)
    for i in range(len(load)):
        np.testing.assert_allclose(
            leaping.result.token_times_s(i), stepping.result.token_times_s(i), rtol=0, atol=1e-9
        )
    found = leaping.metrics()["spec_decode_acceptance_length"]
    assert found == pytest.approx(2.60, abs=0.12)
    again = simulate(deployment, load, seed=6)
    assert again.metrics()["spec_decode_acceptance_length"] != found


def test_the_result_file_says_what_was_assumed() -> None:
    on = {"speculative_method": "eagle3", "num_speculative_tokens": 2}
    load = build_workload(WorkloadSpec(random_input_len=9, random_output_len=9, num_prompts=3))
    simulation = simulate(Deployment(**DEPLOYMENT, **on), load)
    own = bench_document(simulation, simulation.metrics(), seed=0)["dynosim"]
    assert isinstance(own, dict)
    assert own["speculation"] == {
        "method": "eagle3",
        "num_speculative_tokens": 2,
        "acceptance": [0.7296, 0.5208],
    }
    assert own["metrics"]["spec_decode_acceptance_length"] > 1.0


def test_measured_eagle3_against_the_same_engine_without(shared_data: Any) -> None:
    """inference-perf's KubeCon demo; the draft's waits were fitted at its first and last point."""
    import pandas as pd

    measured = pd.read_csv(shared_data / "groundtruth" / "inference_perf_kubecon_h100.csv.gz")
    rows = measured[measured["config"] == "vllm+eagle"]
    deployment = Deployment(
        **DEPLOYMENT,
        backend_version="0.11.0",
        gpu_memory_utilization=0.9,
        max_model_len=512,
        max_num_seqs=128,
        speculative_method="eagle3",
        num_speculative_tokens=4,
        speculative_acceptance_rates="0.11, 0.015, 0.002, 0",
    )
    for row in rows.itertuples():
        if row.n_fail or row.requested_rate > 60:
            continue
        spec = WorkloadSpec(
            random_input_len=74,
            random_prefix_len=128,
            random_output_len=64,
            num_prompts=max(50, int(15 * row.requested_rate)),
            request_rate=row.requested_rate,
            burstiness=1e6,
        )
        found = simulate(deployment, build_workload(spec)).metrics()
        assert found["mean_tpot_ms"] == pytest.approx(row.tpot_ms, rel=0.15), row.requested_rate
