"""Who waits at a router, who is shed and why, and that nobody is lost on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.kv_transfer import Overlap
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.metrics import summarize
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import RunResult
from dynosim.sim.workload.columns import Workload
from pools import FIRST_TOKENS, pools, wire
from test_leap import both
from workloads import workload, workloads

# Ten milliseconds a step, whatever is in it.
TEN_MS = AffineTimer(0.010, 0.0, 0.0, 0.0, 0.0)


def spec(replicas: int = 1, num_blocks: int = 100, **options: Any) -> ClusterSpec:
    return ClusterSpec(
        timer=TEN_MS,
        limits=EngineLimits(max_num_seqs=2, max_num_batched_tokens=1000),
        num_blocks=num_blocks,
        max_model_len=1000,
        replicas=replicas,
        routing=RouterOptions(**options),
    )


def at_once(n: int, prompts: list[int] | None = None, output: int = 3, **more: Any) -> Workload:
    return workload([0.0] * n, prompts or [16] * n, [output] * n, **more)


# --- waiting --------------------------------------------------------------------------------------


def test_a_request_waits_until_a_replica_has_room() -> None:
    result = run_cluster(spec(router_max_outstanding=2), at_once(5))
    # Three steps each, two at a time.
    np.testing.assert_allclose(result.routed_s, [0.0, 0.0, 0.03, 0.03, 0.06])
    np.testing.assert_allclose(result.first_token_s, [0.01, 0.01, 0.04, 0.04, 0.07])
    metrics = summarize(result)
    assert metrics["mean_router_ms"] == pytest.approx((30 + 30 + 60) / 5)
    assert metrics["mean_queue_ms"] == pytest.approx(0.0, abs=1e-9)
    parts_ms = sum(
        metrics[f"mean_{part}_ms"] for part in ("frontend", "router", "queue", "prefill")
    )
    assert parts_ms == pytest.approx(metrics["mean_ttft_ms"])


@pytest.mark.parametrize(
    ("policy", "order"), [("fcfs", [0, 1, 2, 3]), ("lcfs", [0, 3, 2, 1]), ("wspt", [0, 2, 3, 1])]
)
def test_the_policy_says_who_is_next(policy: str, order: list[int]) -> None:
    cluster = spec(router_max_outstanding=1, router_queue_policy=policy)
    result = run_cluster(cluster, at_once(4, [50, 300, 16, 100]))
    assert np.argsort(result.routed_s).tolist() == order


def test_a_lower_priority_number_goes_first_whatever_the_policy() -> None:
    cluster = spec(router_max_outstanding=1, router_queue_policy="wspt")
    result = run_cluster(cluster, at_once(4, [50, 300, 16, 100], priority=[0, 0, 1, 0]))
    assert np.argsort(result.routed_s).tolist() == [0, 3, 1, 2]


def test_a_replica_with_a_queue_of_its_own_takes_no_more() -> None:
    # The first is in the step from 0 s on, the second waits for the next one, at 10 ms. Then the
    # third waits until the first is done, at 30 ms.
    result = run_cluster(spec(router_max_waiting=1), at_once(5))
    np.testing.assert_allclose(result.routed_s, [0.0, 0.0, 0.01, 0.03, 0.04], atol=1e-9)


def test_a_replica_that_holds_many_blocks_takes_no_more() -> None:
    # Each holds four of ten blocks; the second from 10 ms on, until the first is done at 30 ms.
    load = workload([0.0, 0.005, 0.015, 0.016], [50] * 4, [3] * 4)
    result = run_cluster(spec(num_blocks=10, router_max_kv_use=0.5), load)
    np.testing.assert_allclose(result.routed_s, [0.0, 0.005, 0.03, 0.03], atol=1e-9)


def test_whoever_waits_leaves_room_for_only_so_many_more() -> None:
    result = run_cluster(spec(router_max_outstanding=1, router_max_queue=2), at_once(5))
    assert result.refusal.tolist() == [0, 0, 0, Refusal.ROUTER_QUEUE, Refusal.ROUTER_QUEUE]
    assert summarize(result)["rejected_router_queue"] == 2


# --- shedding -------------------------------------------------------------------------------------


def test_what_was_shed_is_counted_and_told_why() -> None:
    cluster = spec(router_max_outstanding=2, router_overload="shed")
    load = workload([0.0, 0.0, 0.005, 0.1], [16] * 4, [3] * 4)
    result = run_cluster(cluster, load)
    assert result.refusal.tolist() == [0, 0, Refusal.QUEUE_DEPTH, 0]
    assert result.refused_s[2] == pytest.approx(0.005)
    assert result.replica.tolist() == [0, 0, -1, 0]
    metrics = summarize(result, {"ttft": 1000.0})
    assert (metrics["completed"], metrics["failed"], metrics["rejected"]) == (3, 1, 1)
    # Who got no answer met no objective.
    assert metrics["slo_attainment"] == pytest.approx(0.75)


def test_a_deadline_that_cannot_be_met_is_not_waited_for() -> None:
    # One prompt fills a step; the third would have its first token after 30 ms at the earliest.
    cluster = replace(spec(router_ttft_deadline_ms=25.0), max_model_len=2000)
    result = run_cluster(cluster, at_once(3, [1000] * 3, output=1))
    assert result.refusal.tolist() == [0, 0, Refusal.DEADLINE]


def test_a_deadline_that_passes_at_the_router_ends_the_wait() -> None:
    cluster = spec(router_max_outstanding=1, router_ttft_deadline_ms=25.0)
    result = run_cluster(cluster, at_once(2))
    assert result.refusal.tolist() == [0, Refusal.DEADLINE]
    assert result.refused_s[1] == pytest.approx(0.025)


def test_a_client_whose_request_was_shed_sends_its_next_one() -> None:
    cluster = spec(router_max_outstanding=1, router_overload="shed")
    load = replace(at_once(6, output=3), max_concurrency=2)
    result = run_cluster(cluster, load)
    # The second client is turned away four times at once, while the first one's answer comes.
    assert result.refusal.tolist() == [0] + [Refusal.QUEUE_DEPTH] * 5
    assert np.all(result.sent_s == 0.0)


def test_thousands_are_shed_at_one_instant() -> None:
    cluster = spec(router_max_outstanding=1, router_overload="shed")
    result = run_cluster(cluster, replace(at_once(5000), max_concurrency=50))
    assert summarize(result)["rejected"] == 4999


# --- nobody is lost -------------------------------------------------------------------------------

OPTIONS = st.fixed_dictionaries(
    {
        "router": st.sampled_from(["round_robin", "least_outstanding", "prefix_hash", "kv_aware"]),
        "router_max_outstanding": st.sampled_from([None, 1, 3]),
        "router_max_waiting": st.sampled_from([None, None, 1]),
        "router_max_kv_use": st.sampled_from([None, None, 0.2, 0.7]),
        "router_ttft_deadline_ms": st.sampled_from([None, 15.0, 300.0, 3000.0]),
        "router_replicas": st.integers(1, 2),
    }
)
WHILE_WAITING = st.fixed_dictionaries(
    {
        "router_queue_policy": st.sampled_from(["fcfs", "lcfs", "wspt"]),
        "router_max_queue": st.sampled_from([None, 1, 4]),
    }
)


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    chosen = draw(OPTIONS)
    if RouterOptions(**chosen).has_thresholds:
        if draw(st.booleans()):
            return chosen | {"router_overload": "shed"}
        return chosen | draw(WHILE_WAITING)
    return chosen


def assert_all_accounted_for(result: RunResult, load: Workload) -> None:
    done, shed = result.completed, result.shed
    assert np.all(done ^ shed)
    assert np.array_equal(done, result.replica >= 0)
    assert np.array_equal(np.isnan(result.refused_s), done)
    assert not np.isnan(result.sent_s).any()
    metrics = summarize(result)
    by_reason = sum(metrics[name] for name in metrics if name.startswith("rejected_"))
    assert metrics["completed"] + metrics["rejected"] == len(load)
    assert by_reason == metrics["rejected"] == metrics["failed"]


@settings(max_examples=200, deadline=None)
@given(load=workloads(), chosen=options(), replicas=st.integers(1, 3))
def test_every_request_is_served_or_shed_once(
    load: Workload, chosen: dict[str, Any], replicas: int
) -> None:
    cluster = spec(replicas, num_blocks=40, **chosen)
    assert_all_accounted_for(run_cluster(cluster, load, seed=2), load)


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "trtllm"])
@settings(max_examples=40, deadline=None)
@given(
    load=workloads(),
    chosen=options(),
    overlap=st.sampled_from(["none", "chunk", "layer"]),
    local_below_tokens=st.sampled_from([0, 100]),
    prefill_router=st.sampled_from(["round_robin", "kv_aware", "cost_aware"]),
)
def test_so_it_is_where_two_pools_share_the_work(
    scheduler: str,
    load: Workload,
    chosen: dict[str, Any],
    overlap: Overlap,
    local_below_tokens: int,
    prefill_router: str,
) -> None:
    transfer = wire(FIRST_TOKENS[scheduler], overlap, bytes_s=1e8)
    cluster = pools(
        scheduler,
        transfer,
        prefill=2,
        decode=2,
        num_blocks=160,
        caching=scheduler == "vllm",
        local_below_tokens=local_below_tokens,
    )
    options = RouterOptions(**chosen)
    assert cluster.prefill is not None
    prefill = replace(cluster.prefill.pool, routing=replace(options, router=prefill_router))
    cluster = replace(cluster, routing=options, prefill=replace(cluster.prefill, pool=prefill))
    assert_all_accounted_for(run_cluster(cluster, load, seed=2), load)


@settings(max_examples=100, deadline=None)
@given(load=workloads(), chosen=options())
def test_admission_is_the_same_whether_the_engine_leaps_or_steps(
    load: Workload, chosen: dict[str, Any]
) -> None:
    cluster = replace(spec(num_blocks=40, **chosen), timer=AffineTimer())
    both(cluster, load)
