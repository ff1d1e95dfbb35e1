"""Rules of vLLM's scheduler beyond first come, first served; one hand-computed test each."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from affine_timer import AffineTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.engine import EngineLimits
from workloads import workload

# Every step takes 10 ms + 0.01 ms per new token, whatever else is in it.
TIMER = AffineTimer(
    base_s=0.010, per_token_s=1e-5, per_pair_s=0.0, per_sequence_s=0.0, per_context_s=0.0
)


def spec(
    num_blocks: int = 1000,
    max_num_seqs: int = 8,
    budget: int = 100,
    caching: bool = False,
    policy: Literal["fcfs", "priority"] = "fcfs",
    threshold: int = 0,
    watermark: float = 0.0,
    reserve: bool = True,
) -> ClusterSpec:
    limits = EngineLimits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        block_size=10,
        enable_prefix_caching=caching,
        scheduling_policy=policy,
        long_prefill_token_threshold=threshold,
        watermark=watermark,
        scheduler_reserve_full_isl=reserve,
    )
    return ClusterSpec(timer=TIMER, limits=limits, num_blocks=num_blocks, max_model_len=100_000)


def step_ends_s(*tokens: int) -> np.ndarray:
    """Returns the ends of steps that follow each other, of so many tokens each."""
    return np.cumsum(0.010 + 1e-5 * np.asarray(tokens))


# --- priority -----------------------------------------------------------------------------------


def test_priority_lets_the_lowest_number_in_first_and_equals_in_order_of_arrival() -> None:
    load = workload([0.0] * 4, [10] * 4, [1] * 4, priority=[1, 2, 0, 1])
    result = run_cluster(spec(max_num_seqs=1, policy="priority"), load)
    assert np.argsort(result.finish_s).tolist() == [2, 0, 3, 1]


def test_priority_is_ignored_first_come_first_served() -> None:
    load = workload([0.0] * 4, [10] * 4, [1] * 4, priority=[1, 2, 0, 1])
    result = run_cluster(spec(max_num_seqs=1), load)
    assert np.argsort(result.finish_s).tolist() == [0, 1, 2, 3]


def test_an_urgent_arrival_overtakes_a_queue_that_is_blocked() -> None:
    # 6 blocks. Request 0 holds 4 to 5 of them; request 1 needs 4 and waits; request 2 needs one
    # and enters in the step after its arrival, though the engine was leaping.
    load = workload([0.0, 0.005, 0.035], [35, 40, 5], [10, 1, 1], priority=[1, 1, 0])
    result = run_cluster(spec(num_blocks=6, policy="priority"), load)
    # Steps of 35, 1, 1 and 1 tokens end at 40.38 ms.
    assert result.scheduled_s[2] == pytest.approx(step_ends_s(35, 1, 1, 1)[-1])
    assert result.scheduled_s[1] == pytest.approx(result.finish_s[0])


def test_the_least_urgent_is_preempted_even_if_it_entered_first_and_had_its_token() -> None:
    # 8 blocks. Step 1: request 0's prompt (4 blocks). Step 2: its decode (a fifth) and request 1's
    # prompt (3). Step 3: request 0 has its token when request 1 lacks a block: it is preempted
    # and its token not computed.
    load = workload([0.0, 0.001], [40, 30], [4, 3], priority=[1, 0])
    result = run_cluster(spec(num_blocks=8, policy="priority"), load)
    assert result.preemptions.tolist() == [1, 0]
    # Request 0's prompt and its two tokens are recomputed once request 1 is done.
    ends = step_ends_s(40, 31, 1, 1, 42, 1)
    np.testing.assert_allclose(result.token_times_s(1), ends[[1, 2, 3]])
    np.testing.assert_allclose(result.token_times_s(0), ends[[0, 1, 4, 5]])


def test_who_preempts_itself_ends_the_step_for_those_behind_it() -> None:
    # 3 blocks, one for each of three that enter one after the other. In step 4 request 1 lacks a
    # second block and is itself the least urgent: request 2, behind it, sits the step out.
    load = workload([0.0, 0.001, 0.012], [5, 9, 5], [6, 3, 3], priority=[0, 2, 1])
    result = run_cluster(spec(num_blocks=3, policy="priority"), load)
    assert result.preemptions.tolist() == [0, 1, 0]
    ends = step_ends_s(5, 10, 7, 1, 2, 2, 11)
    np.testing.assert_allclose(result.token_times_s(0), ends[:6])
    np.testing.assert_allclose(result.token_times_s(2), ends[[2, 4, 5]])
    np.testing.assert_allclose(result.token_times_s(1), ends[[1, 2, 6]])


def test_a_step_in_which_the_first_preempts_itself_takes_no_time() -> None:
    # 2 blocks; request 0 lacks a second one in step 3 and is the least urgent.
    load = workload([0.0, 0.001], [9, 5], [3, 4], priority=[1, 0])
    result = run_cluster(spec(num_blocks=2, policy="priority"), load)
    assert result.preemptions.tolist() == [1, 0]
    ends = step_ends_s(9, 6, 1, 1, 1, 11)
    np.testing.assert_allclose(result.token_times_s(1), ends[[1, 2, 3, 4]])
    np.testing.assert_allclose(result.token_times_s(0), ends[[0, 1, 5]])


# --- long prompts -------------------------------------------------------------------------------


def test_a_long_prompt_leaves_budget_to_the_next_one() -> None:
    # Chunks of 30: both prompts move on together; request 1 is done first.
    load = workload([0.0, 0.0], [90, 60], [1, 1])
    result = run_cluster(spec(threshold=30), load)
    ends = step_ends_s(60, 60, 30)
    assert result.finish_s[1] == pytest.approx(ends[1])
    # In step 3 request 0 is alone; its last chunk happens to be 30 tokens long.
    assert result.finish_s[0] == pytest.approx(ends[2])


def test_the_threshold_does_not_hold_for_a_request_that_is_alone() -> None:
    result = run_cluster(spec(threshold=30), workload([0.0], [90], [1]))
    assert result.finish_s[0] == pytest.approx(0.0109)


def test_budget_goes_to_running_prompts_in_the_order_in_which_they_entered() -> None:
    # Budget 70, chunks of 30: 30 + 30 + 10, twice; then request 0 (60 tokens) is done.
    load = workload([0.0] * 3, [60, 90, 30], [1, 1, 1])
    result = run_cluster(spec(budget=70, threshold=30), load)
    ends = step_ends_s(70, 70, 40)
    np.testing.assert_allclose(result.finish_s, ends[[1, 2, 2]])


# --- admission ----------------------------------------------------------------------------------


def test_the_watermark_is_kept_free_by_those_that_enter() -> None:
    # int(0.2 * 11 blocks, the null block among them) = 2 must stay free: 4 + 5 of 10 are too many.
    load = workload([0.0, 0.0], [35, 50], [4, 1])
    assert run_cluster(spec(num_blocks=10), load).scheduled_s[1] == 0.0
    result = run_cluster(spec(num_blocks=10, watermark=0.2), load)
    assert result.scheduled_s[1] == pytest.approx(result.finish_s[0])


def test_the_watermark_does_not_keep_a_lone_request_out() -> None:
    result = run_cluster(spec(num_blocks=10, watermark=0.2), workload([0.0], [95], [1]))
    assert result.scheduled_s[0] == 0.0


def test_without_reserving_the_whole_prompt_a_first_chunk_is_enough_to_enter() -> None:
    # Request 1's 80 tokens need 8 of the 6 free blocks, its first chunk of 60 tokens only 6. It
    # has to be preempted for its second chunk.
    load = workload([0.0, 0.0], [40, 80], [3, 1])
    assert run_cluster(spec(num_blocks=10), load).preemptions.tolist() == [0, 0]
    result = run_cluster(spec(num_blocks=10, reserve=False), load)
    assert result.scheduled_s[1] == 0.0
    assert result.preemptions.tolist() == [0, 1]


# --- copies of cached blocks --------------------------------------------------------------------


def test_two_copies_of_a_block_stay_and_the_older_is_evicted_first() -> None:
    # Request 1 computes its last block again: its logits are needed, and a hit is a whole block.
    # Request 2 takes the 5 empty blocks and the older copy; request 3 still finds the other one.
    prefix = [1, 2, 3, 4]
    load = workload(
        [0.0, 1.0, 2.0, 3.0], [40, 40, 60, 41], [1] * 4, [prefix, prefix, [], prefix], block=10
    )
    result = run_cluster(spec(num_blocks=10, caching=True), load)
    assert result.cached_tokens.tolist() == [0, 30, 0, 40]


def test_a_block_computed_twice_at_the_same_time_is_freed_twice() -> None:
    # Both prompts start before either has cached anything; conservation is checked by the run.
    prefix = [1, 2, 3, 4, 5, 6]
    load = workload([0.0, 0.0, 1.0], [60, 60, 61], [5, 5, 1], [prefix] * 3, block=10)
    result = run_cluster(spec(num_blocks=12, caching=True, threshold=8), load)
    assert result.cached_tokens.tolist() == [0, 0, 60]
