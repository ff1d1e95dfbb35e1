"""Rules of TensorRT-LLM's in-flight batching, one hand-computed test each.

``docs/trtllm-rules.md`` names the source of every rule.
"""

from __future__ import annotations

from dataclasses import replace

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
    policy: str = "guaranteed_no_evict",
    num_blocks: int = 1000,
    max_num_seqs: int = 8,
    budget: int = 100,
    caching: bool = False,
    chunked: bool = True,
) -> ClusterSpec:
    limits = EngineLimits(
        scheduler="trtllm",
        scheduling_policy=policy,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        block_size=10,
        enable_prefix_caching=caching,
        enable_chunked_prefill=chunked,
    )
    return ClusterSpec(timer=TIMER, limits=limits, num_blocks=num_blocks, max_model_len=100_000)


def step_ends_s(*tokens: int) -> np.ndarray:
    """Returns the ends of steps that follow each other, of so many tokens each."""
    return np.cumsum(0.010 + 1e-5 * np.asarray(tokens))


# --- guaranteed_no_evict ------------------------------------------------------------------------


def test_a_request_enters_only_when_blocks_for_all_its_answer_are_free() -> None:
    # 10 blocks of 10. Request 0 holds 2 and may need 6 in the end (20 + 40 tokens). Request 1
    # (20 + 30) needs 5: it waits, though 8 blocks are free.
    load = workload([0.0, 0.0], [20, 20], [40, 30])
    result = run_cluster(spec(num_blocks=10), load)
    assert result.scheduled_s[1] == pytest.approx(result.finish_s[0])


def test_a_request_whose_whole_answer_fits_beside_the_others_enters_at_once() -> None:
    # As above, but 20 + 20 tokens: 4 blocks beside the 6.
    load = workload([0.0, 0.0], [20, 20], [40, 20])
    result = run_cluster(spec(num_blocks=10), load)
    assert result.scheduled_s.tolist() == [0.0, 0.0]
    assert result.preemptions.tolist() == [0, 0]


def test_the_last_token_counts_although_it_is_never_stored() -> None:
    # 20 + 21 tokens are 5 blocks to completion, though 40 stored tokens need 4.
    load = workload([0.0, 0.0], [20, 20], [40, 21])
    result = run_cluster(spec(num_blocks=10), load)
    assert result.scheduled_s[1] == pytest.approx(result.finish_s[0])


def test_a_request_that_just_fits_the_pool_enters_an_empty_engine() -> None:
    # 90 + 11 tokens would be 11 blocks to completion; the 100 that are stored fit 10.
    result = run_cluster(spec(num_blocks=10), workload([0.0], [90], [11]))
    assert result.completed.all()


def test_the_first_request_that_finds_too_few_blocks_holds_back_all_behind_it() -> None:
    # Request 1 does not fit beside request 0; request 2 would, and waits in line.
    load = workload([0.0] * 3, [20, 60, 10], [40, 10, 1])
    result = run_cluster(spec(num_blocks=10), load)
    assert result.scheduled_s[1] == pytest.approx(result.finish_s[0])
    assert result.scheduled_s[2] >= result.scheduled_s[1]


# --- max_utilization ----------------------------------------------------------------------------


def test_max_utilization_lets_a_request_in_when_its_prompt_fits() -> None:
    # The case that makes the guaranteed policy wait.
    load = workload([0.0, 0.0], [20, 20], [40, 30])
    result = run_cluster(spec("max_utilization", num_blocks=10), load)
    assert result.scheduled_s.tolist() == [0.0, 0.0]


def test_max_utilization_pauses_the_request_that_arrived_last_and_computes_it_again() -> None:
    # 8 blocks of 10 tokens. Both prompts fill 4 blocks; the first decode needs a fifth for each.
    load = workload([0.0, 0.0], [40, 40], [15, 5])
    result = run_cluster(spec("max_utilization", num_blocks=8), load)
    assert result.preemptions.tolist() == [0, 1]
    # 41 tokens need 5 blocks; 3 are free until request 0 is done.
    done_s = step_ends_s(80, *[1] * 14)[-1]
    assert result.finish_s[0] == pytest.approx(done_s)
    expected = [0.0108, *(done_s + step_ends_s(41, 1, 1, 1))]
    np.testing.assert_allclose(result.token_times_s(1), expected)


def test_nobody_enters_in_a_step_in_which_a_request_is_paused() -> None:
    # Request 2 would fit into the 3 blocks that are left after the pause. It enters one step later,
    # but not before the paused request: that keeps its place.
    load = workload([0.0, 0.0, 0.005], [40, 40, 10], [15, 5, 1])
    result = run_cluster(spec("max_utilization", num_blocks=8, max_num_seqs=3), load)
    assert result.preemptions.tolist() == [0, 1, 0]
    assert result.scheduled_s[2] == pytest.approx(result.finish_s[0])


def test_a_paused_request_finds_its_blocks_again() -> None:
    # Request 0 takes one of the 4 blocks that request 1 gave back, its last; of 41 tokens 11 are
    # computed again.
    load = workload([0.0, 0.0], [40, 40], [8, 3], [[1, 2, 3, 4], [5, 6, 7, 8]], block=10)
    result = run_cluster(spec("max_utilization", num_blocks=8, caching=True), load)
    assert result.preemptions.tolist() == [0, 1]
    done_s = step_ends_s(80, *[1] * 7)[-1]
    assert result.token_times_s(1)[1] == pytest.approx(done_s + step_ends_s(11)[0])
    assert result.cached_tokens.tolist() == [0, 0], "what is found again is no prefix hit"


# --- the micro batch ----------------------------------------------------------------------------


def test_generation_takes_its_tokens_before_prompts() -> None:
    # Step 2: the decode of request 0, and 90 of request 1's 150 tokens: whole blocks of what the
    # 99 left would allow. Step 3: the last 60.
    result = run_cluster(spec(), workload([0.0, 0.001], [50, 150], [3, 1]))
    ends = step_ends_s(50, 91, 61)
    np.testing.assert_allclose(result.token_times_s(0), ends)
    assert result.finish_s[1] == pytest.approx(ends[2])


def test_a_chunk_that_is_not_the_last_is_a_multiple_of_the_block() -> None:
    # 95 tokens a step: 90 + 90 + 70, the last one as it is.
    result = run_cluster(spec(budget=95), workload([0.0], [250], [1]))
    assert result.finish_s[0] == pytest.approx(step_ends_s(90, 90, 70)[-1])


def test_a_short_prompt_takes_what_a_cut_one_leaves() -> None:
    # Request 1 gets 90 - 50 = 40 of its 80 tokens in whole blocks; request 2's 5 still fit.
    result = run_cluster(spec(budget=95), workload([0.0] * 3, [50, 80, 5], [1, 1, 1]))
    np.testing.assert_allclose(
        result.finish_s, [step_ends_s(95)[0], step_ends_s(95, 40)[1], step_ends_s(95)[0]]
    )


def test_a_short_prompt_overtakes_one_for_which_less_than_a_block_is_left() -> None:
    # 15 tokens a step, 6 of them decodes: 9 are left, less than a block. Request 7 (30 tokens)
    # waits; request 8 (9 tokens), arriving in a run of decodes, enters in the step after.
    arrivals = [0.0] * 6 + [0.060, 0.085]
    result = run_cluster(spec(budget=15), workload(arrivals, [2] * 6 + [30, 9], [20] * 6 + [1, 1]))
    enters_s = step_ends_s(12, *[6] * 8)
    assert result.scheduled_s[7] == pytest.approx(enters_s[np.searchsorted(enters_s, 0.085)])
    assert result.scheduled_s[6] > result.scheduled_s[7]


def test_without_chunked_context_a_prompt_waits_for_a_step_that_holds_it_whole() -> None:
    # ... and so does what comes behind it.
    load = workload([0.0] * 3, [50, 80, 5], [1, 1, 1])
    result = run_cluster(spec(chunked=False), load)
    np.testing.assert_allclose(result.scheduled_s, [0.0, 0.0105, 0.0105])
    np.testing.assert_allclose(result.finish_s, step_ends_s(50, 85, 85)[[0, 1, 1]])


def test_all_blocks_of_a_prompt_are_taken_with_its_first_chunk() -> None:
    result = run_cluster(spec(), workload([0.0], [250], [1]))
    assert result.replicas[0].steps.used_blocks.tolist() == [25.0, 25.0, 25.0]


# --- block reuse --------------------------------------------------------------------------------


def test_a_request_waits_for_another_that_is_computing_its_prefix() -> None:
    # Both need block 1. Request 1 enters when request 0's prompt is done, and computes 25 tokens.
    load = workload([0.0, 0.0], [45, 45], [1, 1], [[1, 2, 3, 4], [1, 2, 8, 9]], block=10)
    result = run_cluster(spec(caching=True), load)
    assert result.cached_tokens.tolist() == [0, 20]
    np.testing.assert_allclose(result.finish_s, step_ends_s(45, 25))


def test_a_prefix_can_be_found_only_when_its_whole_prompt_is_computed() -> None:
    # Request 0 needs two steps (100 + 40). Request 1 waits for both, though block 1 was computed
    # in the first; request 2 shares nothing and fills the second step.
    prefixes = [list(range(1, 15)), [1, 2, 99], [50, 51]]
    load = workload([0.0] * 3, [140, 30, 20], [1, 1, 1], prefixes, block=10)
    result = run_cluster(spec(caching=True), load)
    ends = step_ends_s(100, 60, 10)
    np.testing.assert_allclose(result.finish_s, ends[[1, 2, 1]])
    assert result.cached_tokens.tolist() == [0, 20, 0]


def test_of_a_prompt_that_is_cached_whole_only_the_last_token_is_computed() -> None:
    load = workload([0.0, 1.0], [40, 40], [1, 1], [[1, 2, 3, 4]] * 2, block=10)
    result = run_cluster(spec(caching=True), load)
    assert result.cached_tokens.tolist() == [0, 39]
    assert result.finish_s[1] == pytest.approx(1.0 + 0.01001)


def test_cached_blocks_that_are_in_use_need_not_be_free() -> None:
    # 8 blocks. Request 0 (40 + 20) will need 6, which leaves 2. Request 1 (45 + 5) will need 5,
    # of which it shares 3 with request 0.
    load = workload([0.0, 0.02], [40, 45], [20, 5], [[1, 2, 3, 4], [1, 2, 3, 9]], block=10)
    result = run_cluster(spec(num_blocks=8, caching=True), load)
    assert result.scheduled_s[1] < result.finish_s[0]


def test_cached_blocks_that_are_idle_count_as_free_but_are_not_spared() -> None:
    # 10 blocks. Request 0 leaves 4 of them cached; request 1 holds 1. Request 2 will need 10 blocks
    # and finds 4 of them cached, yet 9 are free, not 13: it waits for request 1.
    prefixes = [[1, 2, 3, 4], [], [1, 2, 3, 4]]
    load = workload([0.0, 0.02, 0.03], [40, 5, 90], [1, 5, 10], prefixes, block=10)
    result = run_cluster(spec(num_blocks=10, caching=True), load)
    assert result.scheduled_s[2] == pytest.approx(result.finish_s[1])
    assert result.cached_tokens.tolist() == [0, 0, 40]


def test_space_is_taken_from_what_was_used_longest_ago_partial_blocks_included() -> None:
    # 10 blocks. a and b take 5 each, the last of them partial. c takes 4: all of a's but the first.
    # The second a finds that one and takes 4 from b, so that the second b finds its first.
    a, b, c = [1, 2, 3, 4], [5, 6, 7, 8], [11, 12, 13, 14]
    load = workload(
        [0.0, 1.0, 2.0, 3.0, 4.0], [41, 41, 40, 41, 41], [1] * 5, [a, b, c, a, b], block=10
    )
    result = run_cluster(spec(num_blocks=10, caching=True), load)
    assert result.cached_tokens.tolist() == [0, 0, 0, 10, 10]


# --- prompts that wait for each other -----------------------------------------------------------


def waiting(iters: int, ratio: float = 0.9, budget: int = 100) -> ClusterSpec:
    plain = spec(budget=budget)
    limits = replace(
        plain.limits, batch_wait_timeout_iters=iters, batch_wait_max_tokens_ratio=ratio
    )
    return replace(plain, limits=limits)


def test_beside_decodes_a_prompt_waits_for_others() -> None:
    # Request 1 arrives in the second step, waits for five and runs in the eighth.
    result = run_cluster(waiting(5), workload([0.0, 0.015], [20, 20], [40, 5]))
    ends = step_ends_s(20, *[1] * 6)
    assert result.scheduled_s[1] == pytest.approx(ends[6])


def test_nobody_waits_where_nothing_generates() -> None:
    result = run_cluster(waiting(5), workload([0.0], [20], [40]))
    assert result.scheduled_s[0] == 0.0


def test_enough_tokens_wait_no_longer() -> None:
    # 1 + 20 of 100 tokens are too few; with request 2's 70 there are 91.
    load = workload([0.0, 0.015, 0.035], [20, 20, 70], [40, 5, 5])
    result = run_cluster(waiting(20), load)
    together = pytest.approx(step_ends_s(20, 1, 1, 1)[3])
    assert result.scheduled_s[1:].tolist() == [together, together]
