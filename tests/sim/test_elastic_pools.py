"""Two pools whose replicas come, go and fail: nothing is lost or counted twice on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.startup.stage import Stage, StartupPlan
from dynosim.hardware_models.startup.storage import get_storage
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.scaling.start_spec import StartSpec
from dynosim.sim.cluster.scaling.states import ScalingLog, State
from dynosim.sim.metrics import request_latencies_s
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import RunResult
from dynosim.sim.workload.client import ClientPolicy
from dynosim.sim.workload.columns import Workload
from pools import FIRST_TOKENS, pools, wire
from scaled_pools import scaled
from workloads import workload, workloads

# A step takes 10 ms, whatever is in it; 1 ms for every token on the wire.
STEADY = AffineTimer(
    base_s=0.010, per_token_s=0.0, per_pair_s=0.0, per_sequence_s=0.0, per_context_s=0.0
)
AGAIN = ClientPolicy(client_retries=1, client_backoff_s=0.0)
"""Tries once more at once."""


def of(load: Workload, client: ClientPolicy) -> Workload:
    return replace(load, client=client)


def prefill_log(result: RunResult) -> ScalingLog:
    assert result.hand_overs is not None
    assert result.hand_overs.scaling is not None
    return result.hand_overs.scaling


def states(log: ScalingLog | None, replica: int = 0) -> list[tuple[float, State]]:
    assert log is not None
    return [
        (round(time_s, 6), State(int(state)))
        for time_s, number, state in log.changes.tolist()
        if number == replica
    ]


# --- failures by hand --------------------------------------------------------------------------

# Prefill until 10 ms, on the wire until 110 ms, then 100 steps.
ONE = workload([0.0], [100], [100])


@pytest.mark.parametrize("scheduler", FIRST_TOKENS)
@pytest.mark.parametrize(
    "failure",
    [
        pytest.param("crash@0.005:prefill0", id="while the prompt is computed"),
        pytest.param("crash@0.05:prefill0", id="while its KV is on the wire, at the sender"),
        pytest.param("crash@0.05:0", id="while its KV is on the wire, at the receiver"),
        pytest.param("crash@0.5:0", id="while it generates"),
    ],
)
def test_what_a_replica_had_is_lost_with_it(scheduler: str, failure: str):
    spec = scaled(pools(scheduler, timer=STEADY), failures=failure)
    result = run_cluster(spec, ONE)
    assert result.refusal.tolist() == [Refusal.FAILED]
    at_s = float(failure.partition("@")[2].partition(":")[0])
    assert result.refused_s[0] == pytest.approx(at_s)
    assert result.hand_overs is not None
    assert result.hand_overs.replica.tolist() == [-1]


def test_a_prefill_replica_is_done_with_a_prompt_once_its_kv_has_come():
    spec = scaled(pools("vllm", timer=STEADY), failures="crash@0.5:prefill0")
    assert run_cluster(spec, ONE).completed.all()


@pytest.mark.parametrize("at_s", [0.005, 0.05])
def test_a_request_is_tried_again_from_its_prompt_on(at_s: float):
    spec = scaled(pools("trtllm", timer=STEADY), failures=f"crash@{at_s}:prefill0", start_s=1.0)
    result = run_cluster(spec, of(ONE, AGAIN))
    assert result.scaling is not None
    assert result.scaling.attempts.tolist() == [2]
    # Again from 1 s after the crash: 10 ms of prompt and 100 ms on the wire.
    assert result.first_token_s[0] == pytest.approx(at_s + 1.0 + 0.110)
    assert result.hand_overs is not None
    assert result.hand_overs.transfer_s[0] == pytest.approx(0.100)


def test_a_transfer_that_ends_leaves_the_wire_to_others():
    # Two prompts share one sender; the receiver of the first dies after 50 ms.
    spec = scaled(pools("trtllm", timer=STEADY, decode=2), failures="crash@0.05:0")
    result = run_cluster(spec, workload([0.0, 0.0], [100, 100], [2, 2]))
    assert result.completed.tolist() == [False, True]
    # 20 of its tokens had come by then, and the other 80 take 1 ms each.
    assert result.first_token_s[1] == pytest.approx(0.05 + 0.080)
    assert result.hand_overs is not None
    carried = {link.name: link.carried_bytes for link in result.hand_overs.links}
    assert carried["decode 0"] == pytest.approx(20e3)
    assert carried["prefill 0"] == pytest.approx(120e3)


def test_blocks_kept_for_a_prompt_to_come_are_free_again():
    # Six blocks hold one prompt. The first prefill replica dies with the KV that was to come.
    spec = pools("trtllm", timer=STEADY, num_blocks=7, prefill_blocks=64, prefill=2)
    load = workload([0.0, 0.02], [90, 90], [2, 2])
    result = run_cluster(scaled(spec, failures="crash@0.05:prefill0"), load)
    assert result.completed.tolist() == [False, True]
    assert result.first_token_s[1] == pytest.approx(0.05 + 0.090)


def test_an_impatient_client_frees_both_replicas():
    client = ClientPolicy(client_timeout_s=0.05)
    result = run_cluster(pools("vllm", timer=STEADY), of(ONE, client))
    assert result.refusal.tolist() == [Refusal.TIMED_OUT]
    assert result.refused_s[0] == pytest.approx(0.05)


def test_patience_is_for_the_first_token_that_the_client_sees():
    for scheduler, first_s in (("vllm", 0.120), ("trtllm", 0.110)):
        spec = pools(scheduler, timer=STEADY)
        for client_timeout_s, is_served in ((first_s - 0.001, False), (first_s + 0.001, True)):
            client = ClientPolicy(client_timeout_s=client_timeout_s)
            assert run_cluster(spec, of(ONE, client)).completed.all() == is_served


def test_routers_that_restart_break_every_connection():
    load = workload([0.0, 0.0, 2.0], [100, 30, 100], [100, 100, 2])
    spec = pools("vllm", timer=STEADY, local_below_tokens=50)
    result = run_cluster(scaled(spec, failures="router@0.05x1"), of(load, AGAIN))
    assert result.scaling is not None
    assert result.scaling.attempts.tolist() == [2, 2, 1]
    assert result.completed.all()
    assert result.routed_s.tolist() == pytest.approx([1.05, 1.05, 2.0])


def test_only_the_pool_that_is_slow_is_slow():
    def parts(failures: str) -> tuple[float, float]:
        result = run_cluster(scaled(pools("trtllm", timer=STEADY), failures=failures), ONE)
        return float(result.first_token_s[0]), float((result.finish_s - result.first_token_s)[0])

    first_s, rest_s = parts("router@1000x1")
    assert parts("slow@0:0x2x1000") == pytest.approx((first_s, 2 * rest_s))
    assert parts("slow@0:prefill0x2x1000") == pytest.approx((first_s + 0.010, rest_s))


# --- each pool scales by itself ----------------------------------------------------------------


def scheduled(schedule: str, most: int, **more: Any) -> dict[str, Any]:
    return {
        "autoscaler": "scheduled",
        "autoscaler_schedule": schedule,
        "autoscaler_interval_s": 5.0,
        "autoscaler_down_window_s": 0.0,
        "max_replicas": most,
    } | more


def test_pools_grow_and_shrink_apart():
    load = workload(np.arange(0.0, 60.0, 0.25).tolist(), [100] * 240, [5] * 240)
    spec = scaled(pools("vllm"), scheduled("5:3, 30:1", 3), scheduled("10:2", 2))
    result = run_cluster(spec, load)
    assert result.completed.all()
    assert result.scaling is not None
    _, decode = result.scaling.counts([State.READY])
    _, prefill = prefill_log(result).counts([State.READY])
    assert decode.tolist()[-3:] == [1, 3, 1]
    assert prefill.tolist()[-2:] == [1, 2]
    assert states(prefill_log(result), 1)[1:3] == [(10.0, State.STARTING), (20.0, State.READY)]


def test_a_prefill_replica_drains_until_its_blocks_have_been_read():
    # Both prompts are computed until 10 ms, one a replica; 20 s on the wire.
    load = workload([0.0, 0.0, 50.0], [100, 100, 100], [2, 2, 2])
    spec = pools("vllm", wire(bytes_s=5e3), timer=STEADY, prefill=2, decode=2)
    result = run_cluster(scaled(spec, prefill=scheduled("0:2, 5:1", 2)), load)
    assert result.completed.all()
    assert states(prefill_log(result), 1)[-2:] == [(5.0, State.DRAINING), (20.01, State.OFF)]


def test_both_pools_scaled_to_zero_start_one_after_the_other():
    keda = {
        "autoscaler": "keda",
        "autoscaler_metric": "concurrency",
        "autoscaler_target": 8.0,
        "autoscaler_interval_s": 5.0,
        "autoscaler_down_window_s": 0.0,
        "min_replicas": 0,
        "max_replicas": 4,
    }
    load = workload([0.0, 101.0], [100, 100], [2, 2])
    result = run_cluster(scaled(pools("trtllm", timer=STEADY), keda, keda), load)
    assert result.completed.all()
    # Seen by the prefill pool at 105 s, which serves from 115 s on; then by the decode pool.
    ready = [[t for t, s in states(log) if s == State.READY][-1] for log in
             (prefill_log(result), result.scaling)]  # fmt: skip
    assert ready == [115.0, 130.0]
    assert result.first_token_s[1] == pytest.approx(130.0 + 0.100)
    assert result.scaling is not None
    assert (result.scaling.held, prefill_log(result).held) == (1, 1)


def test_each_pool_is_judged_by_what_it_does():
    """TTFT, which decode replicas cannot mend, adds prefill replicas; TPOT the others."""
    slow = AffineTimer(base_s=0.5, per_token_s=0.0, per_pair_s=0.0, per_sequence_s=0.0)
    attained = {
        "autoscaler": "threshold",
        "autoscaler_metric": "slo_attainment",
        "autoscaler_target": 0.9,
        "autoscaler_interval_s": 5.0,
        "max_replicas": 3,
    }
    limits = {"autoscaler_slo_ttft_ms": 5_000.0}
    generous = {"autoscaler_slo_tpot_ms": 10_000.0}
    tight = {"autoscaler_slo_tpot_ms": 1.0}
    load = workload(np.arange(0.0, 60.0, 0.2).tolist(), [500] * 300, [3] * 300)
    spec = pools("vllm", wire(bytes_s=1e9), num_blocks=4000, max_num_seqs=64, timer=slow)
    for tpot, grows in ((generous, False), (tight, True)):
        result = run_cluster(scaled(spec, attained | tpot, attained | limits), load)
        assert result.scaling is not None
        assert (len(result.scaling.start_s) > 0) == grows
        assert len(prefill_log(result).start_s) > 0


def test_starts_of_both_pools_share_the_storage():
    stage = Stage(name="weights", num_bytes=10**10, over="storage")
    storage = replace(get_storage("volume"), scope="cluster", bandwidth_bytes_s=1e9)
    plan = StartupPlan(method="cold", stages=(stage,), storage=storage)
    spec = scaled(pools("vllm"), scheduled("5:2", 2), scheduled("5:2", 2))
    assert spec.prefill is not None
    assert spec.scaling is not None
    assert spec.prefill.pool.scaling is not None
    reads = StartSpec(plan=plan)
    pool = replace(spec.prefill.pool, scaling=replace(spec.prefill.pool.scaling, start=reads))
    both = replace(
        spec, scaling=replace(spec.scaling, start=reads), prefill=replace(spec.prefill, pool=pool)
    )
    result = run_cluster(both, workload([0.0, 60.0], [10, 10], [2, 2]))
    assert result.scaling is not None
    assert result.scaling.start_s.tolist() == pytest.approx([20.0])
    assert prefill_log(result).start_s.tolist() == pytest.approx([20.0])


# --- laws --------------------------------------------------------------------------------------

WHERE = st.sampled_from(["0", "1", "prefill0", "prefill1"])
FAILURES = st.lists(
    st.one_of(
        st.builds("crash@{}:{}".format, st.floats(0, 6).map(lambda t: round(t, 3)), WHERE),
        st.builds("gpu_loss@{}:{}x3".format, st.integers(0, 6), WHERE),
        st.builds("slow@{}:{}x2.5x2".format, st.integers(0, 6), WHERE),
        st.builds("router@{}x1".format, st.integers(0, 6)),
    ),
    max_size=6,
)
SPECS = {
    "num_blocks": st.sampled_from([34, 60, 400]),
    "prefill_blocks": st.sampled_from([26, 60, 400]),
    "max_num_seqs": st.integers(1, 8),
    "budget": st.sampled_from([64, 256, 2048]),
    "caching": st.booleans(),
    "local_below_tokens": st.sampled_from([0, 40]),
    "async_scheduling": st.booleans(),
}


def autoscaler(draw: st.DrawFn) -> dict[str, Any]:
    if not draw(st.booleans()):
        return {"failure_rate_per_hour": draw(st.sampled_from([0.0, 500.0]))}
    return {
        "autoscaler": "keda",
        "autoscaler_metric": draw(st.sampled_from(["concurrency", "kv_use", "queue"])),
        "autoscaler_target": 2.0,
        "autoscaler_interval_s": 1.7,
        "autoscaler_scrape_delay_s": 0.3,
        "autoscaler_down_window_s": 0.0,
        "min_replicas": 0,
        "max_replicas": 4,
    }


@st.composite
def troubles(draw: st.DrawFn, scheduler: str) -> tuple[ClusterSpec, Workload]:
    args = {name: draw(strategy) for name, strategy in SPECS.items()}
    transfer = wire(
        FIRST_TOKENS[scheduler],
        draw(st.sampled_from(["none", "chunk", "layer"])),
        draw(st.sampled_from([3.3e5, 1.01e6, 1.3e8])),
        latency_s=draw(st.sampled_from([0.0, 0.0731])),
    )
    spec = pools(scheduler, transfer, prefill=2, decode=2, **args)
    failures = ", ".join(draw(FAILURES)) or None
    spec = scaled(spec, autoscaler(draw), autoscaler(draw), failures, start_s=0.71)
    client = ClientPolicy(
        client_timeout_s=draw(st.sampled_from([None, 0.1731, 2.0])),
        client_retries=draw(st.integers(0, 3)),
        client_backoff_s=draw(st.sampled_from([0.0, 0.4])),
        client_cancel_share=draw(st.sampled_from([0.0, 0.5])),
        client_cancel_after_s=0.3,
    )
    return spec, of(draw(workloads()), client)


@pytest.mark.parametrize("scheduler", FIRST_TOKENS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_under_failures_every_request_is_answered_or_lost_once(scheduler: str, data: st.DataObject):
    """The recorder counts every token and prompt; engines of both pools hold nothing at the end."""
    spec, load = data.draw(troubles(scheduler))
    result = run_cluster(spec, load)
    done, lost = result.completed, result.refusal >= Refusal.FAILED
    assert (lost ^ done).all()
    assert (result.finish_s[done] >= result.first_token_s[done]).all()
    assert (result.routed_s[done] >= result.arrived_s[done] - 1e-9).all()
    parts = request_latencies_s(result)
    total = sum(parts[name] for name in ("frontend", "router", "queue", "prefill", "transfer"))
    np.testing.assert_allclose(total, parts["ttft"], atol=1e-9)
    assert all((parts[name][done] >= -1e-9).all() for name in ("queue", "prefill", "transfer"))
    assert result.scaling is not None
    assert (result.scaling.attempts <= 1 + load.client.client_retries).all()
    assert result.hand_overs is not None
    links = result.hand_overs.links
    out, into = (sum(u.carried_bytes for u in links if u.name.startswith(p)) for p in "pd")
    assert out == pytest.approx(into)


@pytest.mark.parametrize("scheduler", FIRST_TOKENS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_leaps_change_nothing(scheduler: str, data: st.DataObject):
    spec, load = data.draw(troubles(scheduler))
    if load.max_concurrency is not None:
        return  # Replicas that feed each other meet at one instant, up to rounding.
    assert spec.prefill is not None
    pool = spec.prefill.pool
    single = replace(
        spec,
        limits=replace(spec.limits, max_run=1),
        prefill=replace(spec.prefill, pool=replace(pool, limits=replace(pool.limits, max_run=1))),
    )
    leaped, stepped = run_cluster(spec, load), run_cluster(single, load)
    assert leaped.refusal.tolist() == stepped.refusal.tolist()
    assert leaped.replica.tolist() == stepped.replica.tolist()
    np.testing.assert_allclose(leaped.finish_s, stepped.finish_s, rtol=0, atol=1e-6)
    assert leaped.scaling is not None
    assert stepped.scaling is not None
    np.testing.assert_allclose(leaped.scaling.changes, stepped.scaling.changes, atol=1e-6)
    np.testing.assert_allclose(prefill_log(leaped).changes, prefill_log(stepped).changes, atol=1e-6)


@pytest.mark.parametrize("scheduler", FIRST_TOKENS)
@settings(max_examples=15, deadline=None)
@given(load=workloads())
def test_without_events_an_elastic_run_is_the_plain_one(scheduler: str, load: Workload):
    spec = pools(scheduler, prefill=2, decode=2)
    plain, elastic = run_cluster(spec, load), run_cluster(spec, of(load, AGAIN))
    assert plain.finish_s.tolist() == elastic.finish_s.tolist()
    assert plain.first_token_s.tolist() == elastic.first_token_s.tolist()
    assert plain.hand_overs is not None
    assert elastic.hand_overs is not None
    assert plain.hand_overs.transfer_s.tolist() == elastic.hand_overs.transfer_s.tolist()


def test_requests_in_both_pools_keep_littles_law():
    """The mean number under way is their rate times the mean time each takes, retries included."""
    load = workload(np.linspace(0.0, 20.0, 200).tolist(), [100] * 200, [20] * 200)
    spec = scaled(pools("vllm", prefill=2, decode=2), failures="crash@3:0, crash@9:prefill1")
    result = run_cluster(spec, of(load, replace(AGAIN, client_retries=3)))
    assert result.completed.all()
    end_s = float(result.finish_s.max())
    times_s = np.linspace(0.0, end_s, 20_001)
    under_way = np.searchsorted(np.sort(result.sent_s), times_s, side="right") - np.searchsorted(
        np.sort(result.finish_s), times_s, side="right"
    )
    rate, mean_s = 200 / end_s, float((result.finish_s - result.sent_s).mean())
    assert float(under_way.mean()) == pytest.approx(rate * mean_s, rel=1e-3)
