"""The batch scheduler's rules, one hand-computed test each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.workload.columns import Workload
from workloads import workload, workloads

# Every step takes 10 ms + 0.01 ms per new token, whatever else is in it.
TIMER = AffineTimer(
    base_s=0.010, per_token_s=1e-5, per_pair_s=0.0, per_sequence_s=0.0, per_context_s=0.0
)


def spec(
    num_blocks: int = 1000,
    max_num_seqs: int = 8,
    budget: int = 100,
    block_size: int = 10,
    caching: bool = True,
    chunked: bool = True,
) -> ClusterSpec:
    limits = EngineLimits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        block_size=block_size,
        enable_prefix_caching=caching,
        enable_chunked_prefill=chunked,
    )
    return ClusterSpec(timer=TIMER, limits=limits, num_blocks=num_blocks, max_model_len=100_000)


def test_a_prompt_longer_than_the_budget_is_prefilled_in_chunks() -> None:
    # 250 tokens at 100 a step: 100 + 100 + 50.
    result = run_cluster(spec(), workload([0.0], [250], [1]))
    assert result.finish_s[0] == pytest.approx(0.011 + 0.011 + 0.0105)


def test_running_decodes_take_their_token_before_a_waiting_prompt_gets_the_rest() -> None:
    # Step 1 prefills request 0 (50 tokens, 10.5 ms). Step 2: its decode (1) + 99 of request 1.
    # Step 3: decode (1) + the last 51 of request 1.
    result = run_cluster(spec(), workload([0.0, 0.001], [50, 150], [3, 1]))
    expected = np.cumsum([0.0105, 0.011, 0.01052])
    np.testing.assert_allclose(result.token_times_s(0), expected)
    assert result.finish_s[1] == pytest.approx(expected[2])


def test_two_prompts_share_one_step_when_the_budget_allows() -> None:
    result = run_cluster(spec(), workload([0.0, 0.0], [40, 60], [1, 1]))
    np.testing.assert_allclose(result.finish_s, 0.011)


def test_without_chunked_prefill_a_prompt_waits_for_a_step_that_holds_it_whole() -> None:
    # Request 1 (80 tokens) does not fit beside request 0's 50.
    result = run_cluster(spec(chunked=False), workload([0.0, 0.0], [50, 80], [1, 1]))
    np.testing.assert_allclose(result.finish_s, [0.0105, 0.0105 + 0.0108])


def test_max_num_seqs_bounds_the_batch_and_the_rest_waits_in_order() -> None:
    result = run_cluster(spec(max_num_seqs=1), workload([0.0] * 3, [10] * 3, [2] * 3))
    assert np.all(np.diff(result.scheduled_s) > 0)
    # Each request: one prefill step (10.1 ms) and one decode step (10.01 ms).
    np.testing.assert_allclose(result.finish_s, np.arange(1, 4) * 0.02011)


def test_a_prompt_enters_only_when_blocks_for_all_of_it_are_free() -> None:
    # 10 blocks of 10. Request 0 holds 6 (55 tokens, later 60). Request 1 needs 5: it waits, though
    # its first chunk would fit.
    result = run_cluster(
        spec(num_blocks=10, budget=50, caching=False), workload([0.0, 0.0], [55, 50], [4, 1])
    )
    assert result.scheduled_s[1] == pytest.approx(result.finish_s[0])


def test_the_request_that_entered_last_is_preempted_and_recomputed() -> None:
    # 8 blocks of 10 tokens. Both prompts fill 4 blocks; the first decode needs a fifth for each.
    load = workload([0.0, 0.0], [40, 40], [15, 5])
    result = run_cluster(spec(num_blocks=8, caching=False), load)
    assert result.preemptions.tolist() == [0, 1]
    # Request 1 got its first token with request 0's; when request 0 is done (prefill + 14
    # decodes), its 40 prompt tokens and the one generated are computed again, giving token two.
    prefill_s = 0.010 + 80e-5
    done_s = prefill_s + 14 * 0.01001
    assert result.first_token_s[1] == pytest.approx(prefill_s)
    assert result.finish_s[0] == pytest.approx(done_s)
    expected = [prefill_s, *(done_s + 0.010 + 41e-5 + np.arange(4) * 0.01001)]
    np.testing.assert_allclose(result.token_times_s(1), expected)


def test_a_preempted_request_finds_its_own_blocks_again_if_nobody_took_them() -> None:
    # Request 0 takes one of the 4 blocks that request 1 gave back, the last of its prompt; the
    # other 3 hits leave 11 of 41 tokens to recompute.
    ids = [[1, 2, 3, 4], [5, 6, 7, 8]]
    load = workload([0.0, 0.0], [40, 40], [8, 3], ids, block=10)
    result = run_cluster(spec(num_blocks=8), load)
    assert result.preemptions.tolist() == [0, 1]
    done_s = 0.010 + 80e-5 + 7 * 0.01001
    assert result.finish_s[0] == pytest.approx(done_s)
    assert result.token_times_s(1)[1] == pytest.approx(done_s + 0.010 + 11e-5)


def test_blocks_found_again_after_a_preemption_are_not_counted_as_prefix_hits() -> None:
    # The published trap: re-counting them inflated another simulator's throughput 45 times.
    ids = [[1, 2, 3, 4], [5, 6, 7, 8]]
    load = workload([0.0, 0.0], [40, 40], [8, 3], ids, block=10)
    result = run_cluster(spec(num_blocks=8), load)
    assert result.preemptions.sum() == 1
    assert result.cached_tokens.tolist() == [0, 0]


def test_a_shared_prefix_is_computed_once() -> None:
    load = workload([0.0, 1.0], [50, 50], [1, 1], [[1, 2, 3, 4], [1, 2, 3, 9]], block=10)
    result = run_cluster(spec(), load)
    assert result.cached_tokens.tolist() == [0, 30]
    assert result.finish_s[1] - 1.0 == pytest.approx(0.010 + 20e-5)


def test_a_prompt_that_is_cached_whole_still_computes_its_last_block() -> None:
    load = workload([0.0, 1.0], [40, 40], [1, 1], [[1, 2, 3, 4]] * 2, block=10)
    result = run_cluster(spec(), load)
    assert result.cached_tokens.tolist() == [0, 30]


def test_prefix_caching_switched_off_hits_nothing() -> None:
    load = workload([0.0, 1.0], [40, 40], [1, 1], [[1, 2, 3, 4]] * 2, block=10)
    assert run_cluster(spec(caching=False), load).cached_tokens.sum() == 0


def test_a_prefix_scheduled_in_the_same_step_is_already_shared() -> None:
    load = workload([0.0, 0.0], [45, 45], [1, 1], [[1, 2, 3, 4]] * 2, block=10)
    result = run_cluster(spec(), load)
    assert result.cached_tokens.tolist() == [0, 40]
    np.testing.assert_allclose(result.finish_s, 0.010 + 50e-5)


def test_space_is_taken_from_the_prefix_used_longest_ago() -> None:
    # a and b keep their 4 named blocks each; their partial tails, and 2 blocks never used, hold
    # nothing findable and are taken first. c (4 blocks) so evicts only two, from the end of a.
    a, b, c = [1, 2, 3, 4], [5, 6, 7, 8], [11, 12, 13]
    load = workload(
        [0.0, 1.0, 2.0, 3.0, 4.0], [41, 41, 31, 41, 41], [1] * 5, [a, b, c, b, a], block=10
    )
    result = run_cluster(spec(num_blocks=10), load)
    assert result.cached_tokens.tolist() == [0, 0, 0, 40, 20]


def test_a_pool_smaller_than_one_request_is_an_error_and_not_a_livelock() -> None:
    with pytest.raises(UserError, match=r"needs 11 KV blocks; the whole pool has 10"):
        run_cluster(spec(num_blocks=10), workload([0.0], [100], [5]))


def test_a_request_longer_than_max_model_len_is_refused_and_counted() -> None:
    limited = replace(spec(), max_model_len=100)
    result = run_cluster(limited, workload([0.0, 0.0], [90, 91], [10, 10]))
    assert result.completed.tolist() == [True, False]
    assert result.replica.tolist() == [0, -1]


def test_a_closed_loop_keeps_its_concurrency_and_sends_when_an_answer_ends() -> None:
    load = workload([0.0] * 4, [10] * 4, [2] * 4, max_concurrency=2)
    result = run_cluster(spec(), load)
    np.testing.assert_allclose(result.sent_s[2:], result.finish_s[:2])


@settings(max_examples=60, deadline=None)
@given(load=workloads(), num_blocks=st.sampled_from([34, 50, 400]), seqs=st.integers(1, 8))
def test_nothing_is_lost_and_nothing_comes_before_its_cause(
    load: Workload, num_blocks: int, seqs: int
) -> None:
    # Token and block conservation are checked by run_cluster itself at the end of every run.
    limits = EngineLimits(max_num_seqs=seqs, max_num_batched_tokens=64)
    cluster = ClusterSpec(
        timer=TIMER, limits=limits, num_blocks=num_blocks, max_model_len=10_000, replicas=2
    )
    result = run_cluster(cluster, load)
    assert result.completed.all()
    assert np.all(result.sent_s >= load.arrival_s)
    assert np.all(result.scheduled_s >= result.sent_s - 1e-9)
    assert np.all(result.first_token_s > result.scheduled_s)
    assert np.all(result.finish_s >= result.first_token_s)
    assert np.all(result.cached_tokens < load.input_tokens)
    for log in result.replicas:
        assert np.all(log.steps.running <= seqs)
        ends = log.steps.start_s + log.steps.durations_s
        assert np.all(log.steps.start_s[1:] >= ends[:-1] - 1e-9), "steps overlap"


@settings(max_examples=30, deadline=None)
@given(load=workloads(), seed=st.integers(0, 3))
def test_one_seed_gives_one_result(load: Workload, seed: int) -> None:
    cluster = replace(
        spec(num_blocks=400, block_size=16),
        replicas=3,
        routing=RouterOptions(router="least_outstanding"),
    )
    first, second = run_cluster(cluster, load, seed), run_cluster(cluster, load, seed)
    assert np.array_equal(first.finish_s, second.finish_s)
    assert np.array_equal(first.replica, second.replica)
