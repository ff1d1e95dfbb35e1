"""Data-parallel ranks: in lock step where they share experts, by themselves where they do not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_group_timer import AffineGroupTimer
from affine_timer import AffineTimer
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import module_names
from dynosim.hardware_models.timing.data_parallel import slowest
from dynosim.sim.cluster.balancers.base import Balancer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.pool import make_balancer
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.deployment import Deployment
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.results import RunResult
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.columns import Workload
from test_leap import both
from workloads import workload, workloads

BALANCERS = module_names("dynosim.sim.cluster.balancers")
LIMITS = EngineLimits(max_num_seqs=8, max_num_batched_tokens=512)
FLAT = AffineTimer(
    base_s=0.0, per_token_s=0.0, per_pair_s=0.0, per_sequence_s=0.001, per_context_s=0.0
)
"""A rank that works a millisecond for each sequence that decodes, and nothing else."""


def group(timer: AffineGroupTimer, **fields: object) -> ClusterSpec:
    spec = ClusterSpec(
        timer=timer.own,
        limits=LIMITS,
        num_blocks=400,
        max_model_len=10_000,
        ranks=timer.ranks,
        lockstep=timer,
    )
    return replace(spec, **fields)  # type: ignore[arg-type]


def step_times_s(result: RunResult, rank: int) -> list[float]:
    steps = result.replicas[rank].steps
    return np.diff(steps.ends_s(np.arange(len(steps)))).tolist()


@settings(max_examples=150, deadline=None)
@given(
    load=workloads(),
    ranks=st.integers(1, 4),
    own=st.sampled_from([AffineTimer(), AffineTimer(knee=500), AffineTimer(per_context_s=0.0)]),
    num_blocks=st.sampled_from([34, 40, 400]),
    max_num_seqs=st.integers(1, 8),
    scheduler=st.sampled_from(["vllm", "sglang", "trtllm"]),
    balancer=st.sampled_from(BALANCERS),
    replicas=st.integers(1, 2),
    router=st.sampled_from(["round_robin", "least_outstanding"]),
    balance=st.sampled_from([None, (5, 0), (60, 0), (7, 3)]),
)
def test_leap_equals_step(
    load: Workload,
    ranks: int,
    own: AffineTimer,
    num_blocks: int,
    max_num_seqs: int,
    scheduler: str,
    balancer: str,
    replicas: int,
    router: str,
    balance: tuple[int, int] | None,
) -> None:
    timeout, wait = balance or (0, 0)
    limits = EngineLimits(
        attention_dp_enable_balance=balance is not None and scheduler == "trtllm",
        attention_dp_timeout_iters=timeout,
        attention_dp_batching_wait_iters=wait,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=256,
        scheduler=scheduler,
        scheduling_policy={"trtllm": "guaranteed_no_evict"}.get(scheduler, "fcfs"),
    )
    spec = group(
        AffineGroupTimer(ranks, own, 0.00317, 0.000113),
        limits=limits,
        num_blocks=num_blocks,
        balancer=balancer,
        # In a closed loop, replicas in lock step feed each other at the same instant.
        replicas=replicas if load.max_concurrency is None else 1,
        routing=RouterOptions(router=router),
    )
    both(spec, load, seed=7)


@settings(max_examples=60, deadline=None)
@given(load=workloads(), ranks=st.integers(2, 4), balancer=st.sampled_from(BALANCERS))
def test_every_request_is_served_by_one_rank_and_gets_all_its_tokens(
    load: Workload, ranks: int, balancer: str
) -> None:
    result = run_cluster(group(AffineGroupTimer(ranks), balancer=balancer), load)
    assert result.completed.all()
    assert len(result.replicas) == ranks
    assert set(result.replica.tolist()) <= set(range(ranks))
    for rank, log in enumerate(result.replicas):
        served = set(log.stints[:, 0].tolist())
        assert served == set(np.flatnonzero(result.replica == rank).tolist())
    for i in range(len(load)):
        assert len(result.token_times_s(i)) == load.output_tokens[i]


@settings(max_examples=60, deadline=None)
@given(load=workloads(), ranks=st.integers(2, 4))
def test_ranks_that_work_at_once_step_at_once(load: Workload, ranks: int) -> None:
    result = run_cluster(group(AffineGroupTimer(ranks)), load)
    ends = [log.steps.ends_s(np.arange(len(log.steps))) for log in result.replicas]
    runs = [np.column_stack((log.steps.start_s, log.steps.dt_s)) for log in result.replicas]
    together = np.unique(np.concatenate(ends).round(9))
    busiest = max(len(end) for end in ends)
    assert len(together) >= busiest
    for own in runs:
        for other in runs:
            # Runs of two ranks start together, or do not overlap.
            for start_s, dt_s in own.tolist():
                inside = (other[:, 0] > start_s + 1e-9) & (other[:, 0] < start_s + dt_s - 1e-9)
                assert not inside.any()


def test_a_step_takes_the_slowest_ranks_work_and_the_experts_of_all() -> None:
    # Ranks of 3 and 1 sequences: 3 ms of the slower one, and 2 ranks padded to 3 tokens each.
    timer = AffineGroupTimer(2, FLAT, joint_base_s=0.010, joint_token_s=0.001)
    load = workload([0.0] * 4, [1] * 4, [20, 5, 20, 20])
    result = run_cluster(group(timer, balancer="round_robin"), load)
    assert result.replica.tolist() == [0, 1, 0, 1]
    three = run_cluster(group(timer), workload([0.0] * 6, [1] * 6, [20, 1, 20, 5, 20, 1]))
    # Prefill, four steps beside the request of rank 1, the others without it, all alike.
    assert step_times_s(three, 0) == pytest.approx([0.003 + 0.010 + 2 * 3 * 0.001] * 19)
    assert step_times_s(three, 1) == pytest.approx([0.003 + 0.010 + 2 * 3 * 0.001] * 4)


def test_an_idle_rank_pays_a_dummy_batch() -> None:
    alone = AffineGroupTimer(1, FLAT)
    result = run_cluster(group(alone), workload([0.0], [1], [50]))
    with_idle = run_cluster(group(AffineGroupTimer(4, FLAT)), workload([0.0], [1], [50]))
    assert len(with_idle.replicas[1].steps) == 0, "nothing to tell of an idle rank"
    slower = np.array(step_times_s(with_idle, 0)) - np.array(step_times_s(result, 0))
    np.testing.assert_allclose(slower, 3 * alone.joint_token_s)


def test_skew_between_ranks_costs_time() -> None:
    lengths = [400, 400, 10, 10, 10, 10, 10, 10]
    timer = AffineGroupTimer(2)
    even = workload([0.0] * 8, [64] * 8, lengths)
    # Turns give both long answers to one rank.
    skewed = workload([0.0] * 8, [64] * 8, [400, 10, 400, 10, 10, 10, 10, 10])
    finish_even = run_cluster(group(timer), even).finish_s.max()
    finish_skewed = run_cluster(group(timer), skewed).finish_s.max()
    assert finish_skewed > finish_even


def test_the_leader_changes_where_lines_cross() -> None:
    # 5 + j and 2 + 2j cross at j = 3.
    assert slowest([(5.0, 1.0), (2.0, 2.0)], 100) == (5.0, 1.0, 4)
    assert slowest([(5.0, 2.0), (2.0, 2.0)], 100) == (5.0, 2.0, 100)
    assert slowest([(5.0, 1.0), (5.0, 2.0)], 100) == (5.0, 2.0, 100)


def test_decodes_of_all_ranks_are_one_leap() -> None:
    load = workload([0.0] * 4, [100] * 4, [1000] * 4)
    result = run_cluster(group(AffineGroupTimer(4)), load)
    for log in result.replicas:
        assert len(log.steps) == 1000
        assert len(log.steps.counts) == 2, "one prefill step, one run of 999 decodes"


# --- balancers --------------------------------------------------------------------------------


@dataclass
class Load:
    outstanding: int
    waiting: int = 0
    prompt_tokens: int = 0


def choices(balancer: Balancer, ranks: list[Load], count: int = 1) -> list[int]:
    return [balancer.choose(ranks) for _ in range(count)]


def test_balancers_by_hand() -> None:
    assert choices(make_balancer("round_robin"), [Load(0)] * 3, 4) == [0, 1, 2, 0]
    assert choices(make_balancer("shortest_queue"), [Load(3), Load(2), Load(2)]) == [1]
    # vLLM: 4 x waiting + running: 5, 8 and 6.
    ranks = [Load(5, waiting=0), Load(2, waiting=2), Load(3, waiting=1)]
    assert choices(make_balancer("least_queued"), ranks) == [0]
    ranks = [Load(1, prompt_tokens=900), Load(5, prompt_tokens=100), Load(2, prompt_tokens=100)]
    assert choices(make_balancer("least_tokens"), ranks) == [2]


def test_an_unknown_balancer_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="least_queued"):
        make_balancer("least_queue")


@pytest.mark.parametrize(
    ("backend", "spread"),
    [("vllm", [0, 1, 2, 0]), ("sglang", [0, 1, 2, 0]), ("trtllm", [0, 1, 2, 1])],
)
def test_each_backend_spreads_requests_by_its_own_rule(backend: str, spread: list[int]) -> None:
    load = workload([0.0, 0.01, 0.02, 0.03], [3000, 100, 2000, 100], [400] * 4)
    deployment = Deployment(
        model="Qwen/Qwen3-8B", gpu="H100", backend=backend, data_parallel_size=3
    )
    assert simulate(deployment, load).result.replica.tolist() == spread


# --- dense models: no experts, no lock step ---------------------------------------------------

DENSE = Deployment(model="Qwen/Qwen3-8B", gpu="H100", backend="sglang")


def assert_equal_runs(one: RunResult, other: RunResult) -> None:
    np.testing.assert_array_equal(one.replica, other.replica)
    np.testing.assert_array_equal(one.first_token_s, other.first_token_s)
    np.testing.assert_array_equal(one.finish_s, other.finish_s)


@settings(max_examples=10, deadline=None)
@given(load=workloads())
def test_ranks_of_a_dense_model_are_independent_replicas(load: Workload) -> None:
    ranks = simulate(replace(DENSE, data_parallel_size=4), load).result
    replicas = simulate(replace(DENSE, replicas=4), load).result
    assert_equal_runs(ranks, replicas)


@settings(max_examples=10, deadline=None)
@given(load=workloads(), balancer=st.sampled_from(BALANCERS))
def test_a_rank_of_a_dense_model_runs_as_if_the_others_were_not_there(
    load: Workload, balancer: str
) -> None:
    if load.max_concurrency is not None:
        load = replace(load, max_concurrency=None)
    deployment = replace(DENSE, backend="vllm", load_balance_method=balancer)
    # Whoever comes in by one door waits there for others.
    no_door = {"frontend_request_s": 0.0, "frontend_per_input_token_s": 0.0}
    ranks = simulate(replace(deployment, data_parallel_size=3), load, overheads=no_door).result
    for rank in range(3):
        own = np.flatnonzero(ranks.replica == rank)
        alone = workload(
            load.arrival_s[own].tolist(),
            load.input_tokens[own].tolist(),
            load.output_tokens[own].tolist(),
            [load.prefix_ids[slice(*load.prefix_offsets[i : i + 2])].tolist() for i in own],
            load.prefix_block_tokens,
            priority=None if load.priority is None else load.priority[own].tolist(),
        )
        result = simulate(deployment, alone, overheads=no_door).result
        np.testing.assert_array_equal(ranks.first_token_s[own], result.first_token_s)
        np.testing.assert_array_equal(ranks.finish_s[own], result.finish_s)


def test_two_replicas_of_ranks_split_the_load_between_them_first() -> None:
    load = workload([0.0] * 8, [50] * 8, [10] * 8)
    result = simulate(replace(DENSE, data_parallel_size=2, replicas=2), load).result
    assert result.replica.tolist() == [0, 2, 1, 3, 0, 2, 1, 3]
    lockstep = run_cluster(group(AffineGroupTimer(2), replicas=2), load)
    assert lockstep.replica.tolist() == [0, 2, 1, 3, 0, 2, 1, 3]
