"""SGLang's scheduling rules, one hand-computed test each (``docs/sglang-rules.md``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.metrics import summarize
from dynosim.sim.workload.columns import Workload
from workloads import workload, workloads

# Every step takes 10 ms + 0.01 ms per new token, whatever else is in it.
TIMER = AffineTimer(
    base_s=0.010, per_token_s=1e-5, per_pair_s=0.0, per_sequence_s=0.0, per_context_s=0.0
)


def spec(num_tokens: int = 100_000, chunk: int = 100, seqs: int = 8, **options: Any) -> ClusterSpec:
    """Returns one engine with pages of one token, SGLang's default."""
    limits = EngineLimits(
        scheduler="sglang", max_num_seqs=seqs, max_num_batched_tokens=chunk, block_size=1
    )
    limits = replace(limits, **options)
    num_blocks = num_tokens // limits.block_size
    return ClusterSpec(timer=TIMER, limits=limits, num_blocks=num_blocks, max_model_len=1_000_000)


# --- batches ----------------------------------------------------------------------------------


def test_a_prefill_batch_runs_alone_and_decodes_sit_it_out() -> None:
    # Request 0: 50 tokens. Request 1: 100 + 50 tokens, before request 0 gets its second.
    result = run_cluster(spec(), workload([0.0, 0.001], [50, 150], [3, 1]))
    assert result.first_token_s[1] == pytest.approx(0.0105 + 0.0110 + 0.0105)
    np.testing.assert_allclose(result.token_times_s(0), [0.0105, 0.04201, 0.05202])


def test_with_mixed_chunks_decodes_take_part_and_their_tokens_count() -> None:
    # Request 1 gets 99 tokens beside request 0's, then 51.
    mixed = spec(enable_mixed_chunk=True)
    result = run_cluster(mixed, workload([0.0, 0.001], [50, 150], [3, 1]))
    np.testing.assert_allclose(result.token_times_s(0), [0.0105, 0.0215, 0.03202])
    assert result.first_token_s[1] == pytest.approx(0.03202)


def test_one_prompt_is_cut_by_the_end_of_the_batch_and_goes_first_in_the_next() -> None:
    # 40 + 60 of 90; then the other 30, and 30 of request 2.
    result = run_cluster(spec(), workload([0.0] * 3, [40, 90, 30], [1] * 3))
    np.testing.assert_allclose(result.first_token_s, [0.011, 0.0216, 0.0216])


def test_without_chunked_prefill_the_first_prompt_enters_whole_and_the_next_must_fit() -> None:
    # Request 0 is longer than a batch. Of the others, request 1 leaves no room for request 2.
    result = run_cluster(
        spec(enable_chunked_prefill=False), workload([0.0] * 3, [150, 60, 40], [1] * 3)
    )
    np.testing.assert_allclose(result.first_token_s, [0.0115, 0.0221, 0.0325])


def test_a_prefill_batch_takes_no_more_than_max_prefill_tokens_even_in_a_larger_chunk() -> None:
    # 10,000 + 10,000 is beyond 16,384: the third prompt waits for the next batch.
    result = run_cluster(spec(chunk=40_000), workload([0.0] * 3, [10_000] * 3, [1] * 3))
    np.testing.assert_allclose(result.first_token_s, [0.21, 0.21, 0.32])


# --- admission --------------------------------------------------------------------------------


def test_a_request_enters_when_its_prompt_and_all_its_output_are_free() -> None:
    # The first is promised 30 + 30 + 1 of 100 tokens; the second would need 30 + 20 + 1. Once the
    # first decodes, it holds 30, and 0.7 of the 29 tokens that it may still generate.
    load = workload([0.0, 0.0], [30, 30], [30, 20])
    waits = run_cluster(spec(num_tokens=100), load)
    assert waits.scheduled_s[1] == pytest.approx(waits.finish_s[0])
    assert run_cluster(spec(num_tokens=102), load).scheduled_s[1] == pytest.approx(0.0103)


def test_conservativeness_scales_the_share_of_outputs_that_is_left_room_for() -> None:
    load = workload([0.0, 0.0], [30, 30], [30, 20])
    daring = run_cluster(spec(num_tokens=100, schedule_conservativeness=0.0), load)
    assert daring.scheduled_s[1] == pytest.approx(0.0103)


def test_the_share_falls_as_decode_steps_pass() -> None:
    # Request 1 needs 318 + 51 + 1 of 1,050. After 9 steps request 0 holds 19 and is promised
    # 0.691 x 990 more: 347 are left, and request 1 waits for its end. After 601 steps it holds 611
    # and is promised 0.098 x 398: 400 are left.
    load = workload([0.0, 0.1], [10, 318], [1000, 51])
    engine = spec(num_tokens=1050, chunk=1000)
    early = run_cluster(engine, load)
    assert early.scheduled_s[1] == pytest.approx(early.finish_s[0])
    later = replace(load, arrival_s=np.array([0.0, 6.02]))
    assert run_cluster(engine, later).scheduled_s[1] == pytest.approx(0.0101 + 601 * 0.01001)


def test_an_idle_engine_starts_again_with_the_highest_share() -> None:
    # The same after a run of 700 steps that ended in a pause.
    load = workload([0.0, 9.0, 9.1], [10, 10, 318], [701, 1000, 51])
    result = run_cluster(spec(num_tokens=1050, chunk=1000), load)
    assert result.finish_s[0] < 9.0
    assert result.scheduled_s[2] == pytest.approx(result.finish_s[1])


def test_at_most_4096_tokens_of_an_output_are_left_room_for() -> None:
    # Both may generate 9,000 tokens, and the pool holds 10,000 + 2 x 10.
    load = workload([0.0, 0.0], [10, 10], [9000, 9000])
    result = run_cluster(spec(num_tokens=10_020), load)
    assert result.scheduled_s.tolist() == [0.0, 0.0]


def test_who_does_not_fit_is_tried_again_only_after_a_decode_batch_has_lost_somebody() -> None:
    # Two slots. Request 1 ends with the first decode step, which is noticed as the next one is
    # formed, for request 0 alone; so request 2 enters after that.
    result = run_cluster(spec(seqs=2), workload([0.0] * 3, [10] * 3, [5, 2, 1]))
    assert result.finish_s[1] == pytest.approx(0.0102 + 0.01002)
    assert result.scheduled_s[2] == pytest.approx(result.finish_s[1] + 0.01001)


def test_a_request_alone_enters_whatever_it_may_need() -> None:
    # It fits the pool to the token, which leaves no page to spare.
    result = run_cluster(spec(num_tokens=100), workload([0.0], [60], [41]))
    assert result.completed.all()


def test_chunks_of_broken_pages_are_refused() -> None:
    with pytest.raises(UserError, match=r"100 is no multiple of 16\n  nearest: 96"):
        run_cluster(spec(block_size=16), workload([0.0], [10], [1]))


# --- retraction -------------------------------------------------------------------------------


def two_that_grow_beyond_the_pool() -> tuple[ClusterSpec, Workload]:
    # Daring: both enter 100 tokens, holding 30 + 31, and 39 are left to grow into.
    daring = spec(num_tokens=100, schedule_conservativeness=0.0)
    return daring, workload([0.0, 0.0], [30, 31], [40, 35])


def test_who_has_generated_least_and_has_the_longest_prompt_is_retracted() -> None:
    result = run_cluster(*two_that_grow_beyond_the_pool())
    assert result.preemptions.tolist() == [0, 1]
    # 19 steps of both, and the first generates the other 20 of its 40 tokens alone.
    entered_s = 0.0103 + 0.01031
    assert result.finish_s[0] == pytest.approx(entered_s + 19 * 0.01002 + 20 * 0.01001)


def test_a_retracted_request_finds_its_prompt_again_and_computes_its_output() -> None:
    result = run_cluster(*two_that_grow_beyond_the_pool())
    # It waits for the first to end. 31 tokens of its prompt are in the tree; 20 generated ones
    # are computed again and give the 21st.
    times_s = result.token_times_s(1)
    assert times_s[20] == pytest.approx(result.finish_s[0] + 0.0102)
    assert result.finish_s[1] == pytest.approx(times_s[20] + 14 * 0.01001)


def test_what_a_retracted_request_finds_again_is_no_prefix_hit() -> None:
    result = run_cluster(*two_that_grow_beyond_the_pool())
    assert result.cached_tokens.tolist() == [0, 0]


def test_a_retracted_request_goes_to_the_end_of_the_queue() -> None:
    daring, _ = two_that_grow_beyond_the_pool()
    third = workload([0.0, 0.0, 0.03], [30, 31, 40], [40, 35, 30])
    result = run_cluster(daring, third)
    assert result.preemptions.tolist() == [0, 1, 0]
    assert result.first_token_s[2] < result.token_times_s(1)[20]


def test_retraction_raises_the_share_that_is_left_room_for() -> None:
    # After it, 20 generated + 20 of 40 tokens: nearly all. The retracted request could enter again
    # at once, were it still nothing.
    result = run_cluster(*two_that_grow_beyond_the_pool())
    resumed_s = result.token_times_s(1)[20] - 0.0102
    assert resumed_s == pytest.approx(result.finish_s[0])


# --- the prefix cache -------------------------------------------------------------------------


def test_of_a_prompt_that_is_cached_whole_only_the_last_token_is_computed() -> None:
    load = workload([0.0, 1.0], [40, 40], [1, 1], [[1, 2, 3, 4]] * 2, block=10)
    result = run_cluster(spec(), load)
    assert result.cached_tokens.tolist() == [0, 39]
    assert result.finish_s[1] == pytest.approx(1.0 + 0.01001)


def test_with_larger_pages_the_last_page_is_computed() -> None:
    load = workload([0.0, 1.0], [40, 40], [1, 1], [[1, 2, 3, 4]] * 2, block=10)
    assert run_cluster(spec(block_size=10), load).cached_tokens.tolist() == [0, 30]


def test_a_prefix_is_found_when_the_step_that_computes_it_is_over_not_before() -> None:
    ids = [[1, 2, 3, 4]] * 3
    load = workload([0.0, 0.0, 0.005], [45, 45, 45], [1] * 3, ids, block=10)
    assert run_cluster(spec(), load).cached_tokens.tolist() == [0, 0, 40]


def test_a_cut_prompt_is_found_as_far_as_it_got() -> None:
    # Request 0 is cut at 100 tokens; request 1 then finds these, computed by a running request.
    ids = [list(range(15)), list(range(10))]
    load = workload([0.0, 0.001], [150, 105], [5, 1], ids, block=10)
    assert run_cluster(spec(), load).cached_tokens.tolist() == [0, 100]


def test_prefixes_are_evicted_by_whole_leaves_the_one_used_longest_ago_first() -> None:
    # Two prompts of 40 fill 80 of 100 tokens; the third, of 30, needs 10 more than are free. It
    # asks for 30 and gets the whole leaf of the older one, though 10 of its end would do.
    a, b, c = [1, 2, 3, 4], [5, 6, 7, 8], [11, 12, 13]
    load = workload([0.0, 1.0, 2.0, 3.0, 4.0], [40, 40, 30, 41, 41], [1] * 5, [a, b, c, b, a], 10)
    result = run_cluster(spec(num_tokens=100), load)
    assert result.cached_tokens.tolist() == [0, 0, 0, 40, 0]


def test_answers_stay_cached_and_take_their_space() -> None:
    # Of the first, 10 + 59 tokens stay; the second (60) evicts the 59 and, as a leaf now, the 10.
    load = workload([0.0, 2.0, 4.0], [10, 60, 11], [60, 1, 1], [[1], [], [1]], block=10)
    assert run_cluster(spec(num_tokens=100), load).cached_tokens.tolist() == [0, 0, 0]
    assert run_cluster(spec(num_tokens=140), load).cached_tokens.tolist() == [0, 0, 10]


# --- who comes first --------------------------------------------------------------------------


def queue_behind_one(policy: str, prefixes: list[list[int]], outputs: list[int]) -> list[int]:
    """Returns the order in which requests enter that wait for a single slot.

    Request 0 holds it, having computed units 1 to 6; all prompts have 6 units of 16 tokens and
    one more.
    """
    ids = [[1, 2, 3, 4, 5, 6], *prefixes]
    arrivals = [0.0] + [0.001] * len(prefixes)
    load = workload(arrivals, [97] * len(ids), [3, *outputs], ids, block=16)
    result = run_cluster(spec(seqs=1, scheduling_policy=policy), load)
    return [int(i) for i in np.argsort(result.scheduled_s, kind="stable")[1:]]


PREFIXES = [[31, 32, 33, 34, 35, 36], [1, 2, 43, 44, 45, 46], [1, 2, 3, 4, 55, 56]]


def test_fcfs_takes_requests_as_they_came() -> None:
    assert queue_behind_one("fcfs", PREFIXES, [1, 1, 1]) == [1, 2, 3]


def test_lpm_takes_the_longest_cached_prefix_first() -> None:
    assert queue_behind_one("lpm", PREFIXES, [1, 1, 1]) == [3, 2, 1]


def test_lpm_lets_twins_wait_for_the_first_of_them() -> None:
    # 1 and 2 share 2 units, 32 tokens, that nobody has computed yet. 3 comes between.
    twins = [[61, 62, 1001], [61, 62, 1002], [71, 72, 73]]
    assert queue_behind_one("lpm", twins, [1, 1, 1]) == [1, 2, 3], "then 2 finds what 1 left"
    load = workload([0.0] * 3, [97] * 3, [1] * 3, twins, block=16)
    both_slots = spec(seqs=2, chunk=1000, scheduling_policy="lpm")
    result = run_cluster(both_slots, load)
    assert result.scheduled_s[2] == 0.0 < result.scheduled_s[1]
    assert result.cached_tokens.tolist() == [0, 32, 0]


def test_lpm_is_fcfs_while_more_than_128_wait() -> None:
    far = [[10_000 + 10 * i + j for j in range(6)] for i in range(128)]
    order = queue_behind_one("lpm", [*far, [1, 2, 3, 4, 5, 6]], [1] * 129)
    assert order[:2] == [1, 129], "129 wait: in order; then 128: the one with a prefix first"


def test_dfs_weight_goes_down_the_tree_where_most_requests_wait() -> None:
    # Two wait below [1, 2, 3], of which one below [1, 2, 3, 4, 5]; one below [1]; one for nothing.
    waiting = [
        [81, 82, 83, 84, 85, 86],
        [1, 91, 92, 93, 94, 95],
        [1, 2, 3, 103, 104, 105],
        [1, 2, 3, 4, 5, 115],
    ]
    assert queue_behind_one("dfs_weight", waiting, [1] * 4) == [4, 3, 2, 1]


def test_lof_takes_the_longest_output_first() -> None:
    assert queue_behind_one("lof", PREFIXES, [2, 1, 5]) == [3, 1, 2]


def test_without_a_prefix_cache_lpm_and_dfs_weight_are_fcfs() -> None:
    for policy in ("lpm", "dfs_weight"):
        one_slot = spec(seqs=1, scheduling_policy=policy, enable_prefix_caching=False)
        result = run_cluster(one_slot, workload([0.0] * 3, [9, 8, 7], [1] * 3))
        assert np.all(np.diff(result.scheduled_s) > 0)


# --- what it is all good for ------------------------------------------------------------------


def chat(num_requests: int, rate: float) -> Workload:
    """Returns requests of a few families, each with a long prefix of its own."""
    rng = np.random.default_rng(3)
    families = rng.integers(0, 12, num_requests)
    ids = [
        [1000 * int(f) + j for j in range(100)] + [10**6 + 100 * i + j for j in range(5)]
        for i, f in enumerate(families)
    ]
    arrivals = np.cumsum(rng.exponential(1 / rate, num_requests))
    outputs = rng.integers(20, 200, num_requests)
    prompts = [105 * 16 + 3] * num_requests
    return workload(arrivals.tolist(), prompts, outputs.tolist(), ids, block=16)


REAL_TIMER = AffineTimer(per_token_s=60e-6)


def serving(scheduler: str, **options: Any) -> ClusterSpec:
    limits = EngineLimits(scheduler=scheduler, max_num_seqs=64, max_num_batched_tokens=2048)
    return ClusterSpec(
        timer=REAL_TIMER,
        limits=replace(limits, **options),
        num_blocks=1000,
        max_model_len=10_000,
    )


def test_longest_prefix_match_brings_first_tokens_sooner_when_prefixes_compete_for_space() -> None:
    load = chat(300, rate=20.0)
    fcfs = summarize(run_cluster(serving("sglang"), load))
    lpm = summarize(run_cluster(serving("sglang", scheduling_policy="lpm"), load))
    assert lpm["prefix_hit_rate"] > fcfs["prefix_hit_rate"]
    assert lpm["mean_ttft_ms"] < 0.8 * fcfs["mean_ttft_ms"]


def test_prefill_first_shortens_ttft_and_lengthens_the_tail_of_itl_against_vllm() -> None:
    load = chat(200, rate=6.0)
    ample = {"enable_prefix_caching": False}
    ours = replace(serving("sglang", **ample), num_blocks=20_000)
    theirs = replace(serving("vllm", **ample), num_blocks=20_000)
    sglang, vllm = summarize(run_cluster(ours, load)), summarize(run_cluster(theirs, load))
    assert sglang["mean_ttft_ms"] < vllm["mean_ttft_ms"]
    assert sglang["p99_itl_ms"] > 1.2 * vllm["p99_itl_ms"]


def test_mixed_chunks_shorten_the_tail_of_itl_again() -> None:
    load = chat(200, rate=6.0)
    alone = summarize(run_cluster(serving("sglang"), load))
    mixed = summarize(run_cluster(serving("sglang", enable_mixed_chunk=True), load))
    assert mixed["p99_itl_ms"] < alone["p99_itl_ms"]


def test_daring_admission_retracts_and_pays_for_it() -> None:
    rng = np.random.default_rng(5)
    n = 200
    load = workload(
        np.cumsum(rng.exponential(0.02, n)).tolist(),
        rng.integers(50, 300, n).tolist(),
        rng.integers(200, 600, n).tolist(),
    )
    careful = summarize(run_cluster(serving("sglang"), load))
    daring = summarize(run_cluster(serving("sglang", schedule_conservativeness=0.0), load))
    assert careful["preemptions"] < daring["preemptions"]
    assert daring["p99_tpot_ms"] > 1.2 * careful["p99_tpot_ms"]
    assert daring["output_throughput"] < careful["output_throughput"]


@settings(max_examples=60, deadline=None)
@given(
    load=workloads(),
    num_tokens=st.sampled_from([544, 800, 6400]),
    seqs=st.integers(1, 8),
    conservativeness=st.sampled_from([0.0, 1.0]),
)
def test_nothing_is_lost_and_nothing_comes_before_its_cause(
    load: Workload, num_tokens: int, seqs: int, conservativeness: float
) -> None:
    # Token and block conservation are checked by run_cluster itself at the end of every run.
    cluster = spec(num_tokens, 64, seqs, schedule_conservativeness=conservativeness)
    result = run_cluster(replace(cluster, replicas=2), load)
    assert result.completed.all()
    assert np.all(result.scheduled_s >= result.sent_s - 1e-9)
    assert np.all(result.first_token_s > result.scheduled_s)
    assert np.all(result.finish_s >= result.first_token_s)
    assert np.all(result.cached_tokens < load.input_tokens)
    for log in result.replicas:
        assert np.all(log.steps.running <= seqs)
        ends = log.steps.start_s + log.steps.durations_s
        assert np.all(log.steps.start_s[1:] >= ends[:-1] - 1e-9), "steps overlap"


# --- who has arrived ----------------------------------------------------------------------------


def test_while_all_decode_requests_are_received_every_so_many_steps() -> None:
    # Received after the prefill batch, then after five decode steps, and five more.
    load = workload([0.0, 0.012, 0.071], [50, 50, 50], [40, 1, 1])
    result = run_cluster(spec(scheduler_recv_interval=5), load)
    first = 0.0105 + 5 * 0.01001
    assert result.scheduled_s[1] == pytest.approx(first)
    assert result.scheduled_s[2] == pytest.approx(first + 0.0105)


def test_an_idle_engine_receives_at_once() -> None:
    load = workload([0.0, 5.0], [50, 50], [3, 3])
    result = run_cluster(spec(scheduler_recv_interval=30), load)
    assert result.scheduled_s.tolist() == [0.0, 5.0]


def test_after_a_prefill_batch_requests_are_received_at_once() -> None:
    load = workload([0.0, 0.005], [50, 50], [40, 1])
    result = run_cluster(spec(scheduler_recv_interval=30), load)
    assert result.scheduled_s[1] == pytest.approx(0.0105)
