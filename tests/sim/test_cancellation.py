"""Users who go away: their answers end with the step in progress, and count neither way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.metrics import summarize
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import RunResult
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.client import ClientPolicy
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.network import NetworkOptions, network_of
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.sim.workload.turns import Turns
from pools import pools
from workloads import workload, workloads

# Every step takes 10 ms.
STEADY = AffineTimer(0.010, 0.0, 0.0, 0.0, 0.0)
SPEC = ClusterSpec(
    timer=STEADY,
    limits=EngineLimits(max_num_seqs=4, max_num_batched_tokens=512),
    num_blocks=40_000,
    max_model_len=100_000,
)
ALL_LEAVE = ClientPolicy(client_cancel_share=1.0, client_cancel_after_s=0.1)


def of(load: Workload, client: ClientPolicy = ALL_LEAVE) -> Workload:
    return replace(load, client=client)


def generated(result: RunResult) -> float:
    """Returns all tokens that the engines gave."""
    return sum(float(log.steps.outputs @ log.steps.counts) for log in result.replicas)


def test_an_answer_ends_with_the_step_in_which_its_user_goes_away() -> None:
    result = run_cluster(SPEC, of(workload([0.0], [20], [10_000])))
    leaves_s = 0.010 + ALL_LEAVE.leaves_after_s(0, 0)
    assert result.refusal.tolist() == [Refusal.CANCELLED]
    assert result.refused_s[0] == pytest.approx(leaves_s)
    # One token every 10 ms, until the end of the step in progress.
    assert result.wasted_tokens.tolist() == [math.ceil(leaves_s / 0.010)]
    assert generated(result) == result.wasted_tokens.sum()


def test_hanging_up_takes_a_way_back_and_a_way_there() -> None:
    far = replace(
        workload([0.0], [20], [10_000]), network=network_of(NetworkOptions(network_rtt_ms=80))
    )
    result = run_cluster(SPEC, of(far))
    assert result.refused_s[0] == pytest.approx(0.050 + 0.080 + ALL_LEAVE.leaves_after_s(0, 0))


def test_whoever_has_all_of_the_answer_goes_away_with_it() -> None:
    result = run_cluster(SPEC, of(workload([0.0], [20], [2])))
    assert result.completed.all()
    assert not result.wasted_tokens.any()


def test_a_slot_is_free_for_the_next_request() -> None:
    one = replace(SPEC, limits=replace(SPEC.limits, max_num_seqs=1))
    result = run_cluster(one, of(workload([0.0, 0.0], [20, 20], [10_000, 1])))
    assert result.cancelled.tolist() == [True, False]
    freed_s = math.ceil(result.refused_s[0] / 0.010) * 0.010
    assert result.scheduled_s[1] == pytest.approx(freed_s)


def test_neither_answered_nor_lost_nor_late() -> None:
    load = workload([0.0] * 40, [20] * 40, [1, 10_000] * 20)
    result = run_cluster(replace(SPEC, limits=replace(SPEC.limits, max_num_seqs=64)), of(load))
    metrics = summarize(result, {"ttft": 1e6})
    assert metrics["completed"] == metrics["cancelled"] == 20
    assert metrics["failed"] == metrics["rejected"] == 0
    assert metrics["slo_attainment"] == 1.0
    assert metrics["total_output_tokens"] == 20
    assert metrics["wasted_output_tokens"] == generated(result) - 20


def test_a_share_of_the_users_leaves_after_a_while_drawn_from_the_seed() -> None:
    some = ClientPolicy(client_cancel_share=0.3, client_cancel_after_s=2.0)
    after_s = np.array([some.leaves_after_s(i, 7) for i in range(4000)])
    leaves = np.isfinite(after_s)
    # Three standard errors of a share, and of an exponential mean.
    assert leaves.mean() == pytest.approx(0.3, abs=3 * math.sqrt(0.21 / 4000))
    assert after_s[leaves].mean() == pytest.approx(2.0, abs=3 * 2.0 / math.sqrt(leaves.sum()))
    assert after_s.tolist() == [some.leaves_after_s(i, 7) for i in range(4000)]
    # A patient share is the same people for every wait.
    sooner = replace(some, client_cancel_after_s=1.0)
    assert (np.isfinite([sooner.leaves_after_s(i, 7) for i in range(4000)]) == leaves).all()


def test_a_session_goes_on_after_an_answer_that_was_stopped() -> None:
    turns = Turns.chained(np.array([-1, 0]), np.array([0.0, 1.0]))
    load = replace(workload([0.0, 0.0], [20, 20], [10_000, 1]), turns=turns)
    result = run_cluster(SPEC, of(load))
    assert result.cancelled.tolist() == [True, False]
    assert result.sent_s[1] == pytest.approx(result.refused_s[0] + 1.0)


def test_a_user_who_is_gone_does_not_try_again() -> None:
    result = run_cluster(
        SPEC, of(workload([0.0], [20], [10_000]), replace(ALL_LEAVE, client_retries=3))
    )
    assert result.scaling is not None
    assert result.scaling.attempts.tolist() == [1]


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "trtllm", "static"])
@settings(max_examples=20, deadline=None)
@given(
    load=workloads(),
    share=st.sampled_from([0.5, 1.0]),
    after_s=st.sampled_from([0.01, 0.2, 2.0]),
    ahead=st.booleans(),
    replicas=st.sampled_from([1, 2]),
    num_blocks=st.sampled_from([60, 400]),
)
def test_every_token_belongs_to_an_answer_or_is_wasted(
    scheduler: str,
    load: Workload,
    share: float,
    after_s: float,
    ahead: bool,
    replicas: int,
    num_blocks: int,
) -> None:
    policy = "guaranteed_no_evict" if scheduler == "trtllm" else "fcfs"
    client = ClientPolicy(client_cancel_share=share, client_cancel_after_s=after_s)
    results = []
    for max_run in (1, 1 << 40):
        limits = EngineLimits(
            scheduler=scheduler,
            scheduling_policy=policy,
            max_num_seqs=8,
            max_num_batched_tokens=512,
            async_scheduling=ahead,
            max_run=max_run,
        )
        spec = replace(
            SPEC,
            timer=AffineTimer(),
            limits=limits,
            num_blocks=num_blocks,
            replicas=replicas,
            routing=RouterOptions(router="least_outstanding"),
        )
        results.append(run_cluster(spec, of(load, client)))
    stepped, leaped = results
    assert (leaped.completed ^ leaped.cancelled).all()
    answered = int(load.output_tokens[leaped.completed].sum())
    assert generated(leaped) == answered + leaped.wasted_tokens.sum()
    # Leaping over steps changes nothing.
    assert leaped.refusal.tolist() == stepped.refusal.tolist()
    assert leaped.wasted_tokens.tolist() == stepped.wasted_tokens.tolist()
    np.testing.assert_allclose(leaped.finish_s, stepped.finish_s, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "trtllm"])
def test_both_pools_let_go(scheduler: str) -> None:
    load = workload([0.0, 0.05, 0.1], [100, 50, 80], [10_000, 1, 10_000])
    result = run_cluster(pools(scheduler, timer=STEADY, num_blocks=2000), of(load))
    assert result.cancelled.tolist() == [True, False, True]
    assert result.wasted_tokens[[0, 2]].min() > 0


def test_a_time_without_a_share_is_refused() -> None:
    with pytest.raises(UserError, match="client_cancel_share"):
        build_workload(WorkloadSpec(client_cancel_after_s=1.0))


@pytest.mark.parametrize("scheduler", ["vllm", "sglang"])
def test_who_comes_in_the_step_in_which_another_leaves_is_not_seen_earlier_for_it(
    scheduler: str,
) -> None:
    """Asynchronously the next batch was formed when the step began, whoever leaves in it."""
    load = workload([0.0] * 3 + [0.0013] * 6 + [0.0384] * 5, [20] * 14, [1, 7, 7, 6, 23] + [1] * 9)
    leaving = of(load, ClientPolicy(client_cancel_share=0.5, client_cancel_after_s=0.2))
    results = []
    for max_run in (1, 1 << 40):
        limits = EngineLimits(
            scheduler=scheduler,
            max_num_seqs=8,
            max_num_batched_tokens=512,
            async_scheduling=True,
            max_run=max_run,
        )
        results.append(run_cluster(replace(SPEC, timer=AffineTimer(), limits=limits), leaving))
    assert results[0].cancelled.any()
    np.testing.assert_allclose(results[1].finish_s, results[0].finish_s, rtol=0, atol=1e-9)
