"""Rules of static batching, one hand-computed test each; leap = step; nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.metrics import token_gaps_s
from dynosim.sim.workload.columns import Workload
from test_leap import TIMERS, both
from workloads import workload, workloads

# Every step takes 10 ms + 0.01 ms per new token, whatever else is in it.
TIMER = AffineTimer(
    base_s=0.010, per_token_s=1e-5, per_pair_s=0.0, per_sequence_s=0.0, per_context_s=0.0
)


def spec(
    num_blocks: int = 1000,
    max_num_seqs: int = 8,
    budget: int = 1000,
    timer: AffineTimer = TIMER,
    block_size: int = 10,
) -> ClusterSpec:
    limits = EngineLimits(
        scheduler="static",
        scheduling_policy="fcfs",
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        block_size=block_size,
        # Not even with prefix caching asked for is a prefix found again.
        enable_prefix_caching=True,
    )
    return ClusterSpec(timer=timer, limits=limits, num_blocks=num_blocks, max_model_len=100_000)


def step_ends_s(*tokens: int) -> np.ndarray:
    """Returns the ends of steps that follow each other, of so many tokens each."""
    return np.cumsum(0.010 + 1e-5 * np.asarray(tokens))


def test_prompts_are_padded_to_the_longest_of_the_batch() -> None:
    # Two slots of 50 tokens, not 20 + 50.
    result = run_cluster(spec(), workload([0.0, 0.0], [20, 50], [1, 1]))
    np.testing.assert_allclose(result.finish_s, step_ends_s(100)[0])


def test_a_finished_request_keeps_its_slot_computing_until_the_longest_answer_is_done() -> None:
    # Both slots compute in every step, though request 0 has its 2 tokens after the second.
    result = run_cluster(spec(), workload([0.0, 0.0], [10, 10], [2, 4]))
    np.testing.assert_allclose(result.token_times_s(1), step_ends_s(20, 2, 2, 2))
    assert result.finish_s[0] == pytest.approx(step_ends_s(20, 2)[-1])


def test_a_finished_slot_goes_on_reading_its_growing_context() -> None:
    # Steps of 1 ms per 100 tokens of context; both slots have 10, then 11, 12 ... tokens.
    timer = AffineTimer(
        base_s=0.0, per_token_s=0.0, per_pair_s=0.0, per_sequence_s=0.0, per_context_s=1e-5
    )
    load = workload([0.0, 0.0], [10, 10], [2, 5])
    result = run_cluster(spec(timer=timer), load)
    gaps_s = 1e-5 * np.array([22, 24, 26, 28])
    np.testing.assert_allclose(np.diff(result.token_times_s(1)), gaps_s)


def test_tokens_of_finished_slots_are_nobodys() -> None:
    # Request 0 sees one gap between tokens, request 1 three.
    result = run_cluster(spec(), workload([0.0, 0.0], [10, 10], [2, 4]))
    gaps = token_gaps_s(result)
    assert gaps.total == 4


def test_nobody_enters_a_batch_in_progress() -> None:
    # Request 1 arrives in the first step and waits for the fourth to end, with slots free.
    result = run_cluster(spec(), workload([0.0, 0.005], [10, 10], [4, 1]))
    ends = step_ends_s(10, 1, 1, 1)
    assert result.scheduled_s[1] == pytest.approx(ends[-1])
    assert result.finish_s[1] == pytest.approx(ends[-1] + step_ends_s(10)[0])


def test_what_waits_when_the_engine_is_free_becomes_the_next_batch() -> None:
    # Requests 1 to 3 wait for the first batch; two slots take 1 and 2, then 3 is alone.
    load = workload([0.0, 0.001, 0.002, 0.003], [10] * 4, [1] * 4)
    result = run_cluster(spec(max_num_seqs=2), load)
    ends = step_ends_s(10, 20, 10)
    np.testing.assert_allclose(result.finish_s, ends[[0, 1, 1, 2]])


def test_every_slot_holds_blocks_for_the_padded_prompt_and_the_longest_answer() -> None:
    # 50 + 31 tokens, the last of which is not stored: 8 blocks a slot, until the batch ends.
    result = run_cluster(spec(), workload([0.0, 0.0], [20, 50], [31, 1]))
    assert set(result.replicas[0].steps.used_blocks.tolist()) == {16.0}


def test_a_batch_takes_only_as_many_requests_as_their_slots_fit_the_pool() -> None:
    # 20 blocks: slots of 8 blocks for the first two; a third does not fit, though small.
    load = workload([0.0] * 3, [20, 50, 10], [31, 1, 1])
    result = run_cluster(spec(num_blocks=20), load)
    assert result.scheduled_s[1] == 0.0
    assert result.scheduled_s[2] == pytest.approx(result.finish_s[0])


def test_prompts_beyond_the_token_limit_are_computed_in_equal_slices() -> None:
    # 4 slots of 50 tokens, 100 tokens a step: 25 of each slot twice; then all get their token.
    result = run_cluster(spec(budget=100), workload([0.0] * 4, [50, 10, 10, 10], [1] * 4))
    np.testing.assert_allclose(result.finish_s, step_ends_s(100, 100)[-1])


def test_no_prefix_is_found_again() -> None:
    load = workload([0.0, 1.0], [40, 40], [1, 1], [[1, 2, 3, 4]] * 2, block=10)
    assert run_cluster(spec(), load).cached_tokens.sum() == 0


@settings(max_examples=100, deadline=None)
@given(
    load=workloads(),
    timer=st.sampled_from(TIMERS),
    num_blocks=st.sampled_from([34, 64, 400]),
    max_num_seqs=st.integers(1, 8),
    budget=st.sampled_from([4, 64, 257, 2048]),
)
def test_leap_equals_step_and_every_request_ends_once(
    load: Workload, timer: AffineTimer, num_blocks: int, max_num_seqs: int, budget: int
) -> None:
    cluster = spec(num_blocks, max_num_seqs, budget, timer, block_size=16)
    both(cluster, load)
    result = run_cluster(cluster, load)
    assert result.completed.all()
    assert not result.preemptions.any()
    # In a batch all first tokens come at once.
    for start in np.unique(result.scheduled_s):
        firsts = result.first_token_s[result.scheduled_s == start]
        np.testing.assert_allclose(firsts, firsts[0])
