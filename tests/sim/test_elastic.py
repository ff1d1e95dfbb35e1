"""Replicas that come, go and fail: nothing is lost, counted twice or looked at ahead of time."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.startup.stage import Stage, StartupPlan
from dynosim.hardware_models.startup.storage import get_storage
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.spec import scaling_spec
from dynosim.sim.cluster.scaling.start_spec import StartSpec
from dynosim.sim.cluster.scaling.states import State
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.refusal import Refusal
from dynosim.sim.workload.client import ClientPolicy
from dynosim.sim.workload.columns import Workload

GB = 10**9


def plan(*stages, scope="cluster", bandwidth_bytes_s=1.0 * GB, **more):
    storage = replace(get_storage("volume"), scope=scope, bandwidth_bytes_s=bandwidth_bytes_s)
    return StartupPlan(method="cold", stages=stages, storage=storage, **more)


def seconds(value):
    return plan(Stage(name="start", seconds=value))


def workload(arrival_s, output_tokens=20, client=None, max_concurrency=None, prompt=64):
    n = len(arrival_s)
    return Workload(
        name="test",
        arrival_s=np.array(arrival_s, dtype=np.float64),
        input_tokens=np.full(n, prompt),
        output_tokens=np.broadcast_to(np.asarray(output_tokens), (n,)).astype(np.int64),
        prefix_ids=np.empty(0, dtype=np.int64),
        prefix_offsets=np.zeros(n + 1, dtype=np.int64),
        client=client or ClientPolicy(),
        max_concurrency=max_concurrency,
    )


def run(
    load,
    start=None,
    replicas=1,
    seed=0,
    leap=True,
    scheduler="vllm",
    blocks=4096,
    ahead=False,
    **options,
):
    start = StartSpec(plan=start or seconds(10.0))
    scaling = scaling_spec(ScalingOptions(**options), start, replicas)
    limits = EngineLimits(
        max_num_seqs=16,
        max_num_batched_tokens=512,
        scheduler=scheduler,
        scheduling_policy="guaranteed_no_evict" if scheduler == "trtllm" else "fcfs",
        max_run=1 << 40 if leap else 1,
        async_scheduling=ahead,
    )
    spec = ClusterSpec(
        timer=AffineTimer(),
        limits=limits,
        num_blocks=blocks,
        max_model_len=100_000,
        replicas=replicas,
        routing=RouterOptions(router="least_outstanding"),
        scaling=scaling,
    )
    return run_cluster(spec, load, seed)


def states(result, replica):
    return [
        (round(time_s, 6), State(int(state)))
        for time_s, number, state in result.scaling.changes.tolist()
        if number == replica
    ]


def burst(n=60, at_s=0.0):
    return [at_s] * n


# --- starts share what they read from ----------------------------------------------------------


@pytest.mark.parametrize(("count", "each_s"), [(1, 12.0), (2, 14.0), (4, 18.0)])
def test_starts_at_once_share_the_storage(count, each_s):
    """10 s of their own, then 2 GB each over 1 GB/s: 2, 4 or 8 s."""
    start = plan(Stage(name="a", seconds=10.0), Stage(name="b", num_bytes=2 * GB, over="storage"))
    options = {"autoscaler": "scheduled", "autoscaler_schedule": f"5:{1 + count}"}
    result = run(
        workload([0.0, 60.0]),
        start,
        autoscaler_interval_s=5.0,
        max_replicas=1 + count,
        **options,
    )
    assert result.scaling.start_s.tolist() == pytest.approx([each_s] * count)


def test_nodes_do_not_share_their_own_disks_and_readers_keep_to_their_pace():
    stage = Stage(name="b", num_bytes=2 * GB, over="storage", most_bytes_s=0.5 * GB)
    options = {"autoscaler": "scheduled", "autoscaler_schedule": "5:4"}
    result = run(
        workload([0.0, 60.0]),
        plan(stage, scope="node"),
        autoscaler_interval_s=5.0,
        max_replicas=4,
        **options,
    )
    assert result.scaling.start_s.tolist() == pytest.approx([4.0] * 3)


def test_a_restore_that_fails_is_followed_by_a_cold_start():
    start = replace(seconds(3.0), failure_rate=1.0, fallback=seconds(20.0))
    result = run(
        workload([0.0, 60.0]),
        start,
        autoscaler="scheduled",
        autoscaler_schedule="5:2",
        autoscaler_interval_s=5.0,
        max_replicas=2,
    )
    assert result.scaling.start_s.tolist() == pytest.approx([23.0])
    assert result.scaling.fallbacks == 1


# --- the life of a replica ---------------------------------------------------------------------


def test_a_replica_starts_serves_drains_and_goes():
    result = run(
        workload([*burst(200), 16.0], output_tokens=400),
        autoscaler="scheduled",
        autoscaler_schedule="5:2, 20:1",
        autoscaler_interval_s=5.0,
        autoscaler_down_window_s=0.0,
        max_replicas=2,
    )
    # The request of 16 s goes to the emptier replica, which is still at it at 20 s or is not.
    life = states(result, 1)
    assert life[:4] == [
        (0.0, State.OFF),
        (5.0, State.STARTING),
        (15.0, State.READY),
        (20.0, State.DRAINING),
    ]
    assert life[4][1] == State.OFF
    assert result.completed.all()


def test_draining_finishes_what_it_has_and_takes_nothing_new():
    arrivals = [*burst(40), *np.arange(1.0, 30.0, 0.5)]
    result = run(
        workload(arrivals, output_tokens=600),
        replicas=2,
        autoscaler="scheduled",
        autoscaler_schedule="0:2, 5:1",
        autoscaler_interval_s=5.0,
        autoscaler_down_window_s=0.0,
        max_replicas=2,
    )
    assert result.completed.all()
    late = result.arrived_s > 5.0
    assert (result.replica[late] == 0).all()
    (drains_s, _), (gone_s, gone) = states(result, 1)[-2:]
    assert drains_s == 5.0
    assert gone == State.OFF
    assert gone_s == pytest.approx(result.finish_s[result.replica == 1].max())


def test_scaled_to_zero_the_first_request_waits_for_a_start():
    result = run(
        workload([0.0, 100.0]),
        autoscaler="keda",
        autoscaler_metric="concurrency",
        autoscaler_target=8.0,
        autoscaler_interval_s=10.0,
        autoscaler_down_window_s=0.0,
        min_replicas=0,
        max_replicas=4,
    )
    # Seen at 100 or 110 s, started 10 s later.
    waited_s = result.routed_s[1] - result.arrived_s[1]
    assert waited_s == pytest.approx(10.0) or waited_s == pytest.approx(20.0)
    assert result.scaling.held == 1
    assert result.completed.all()


def test_a_start_that_is_given_up_never_serves():
    result = run(
        workload([0.0, 60.0]),
        seconds(30.0),
        autoscaler="scheduled",
        autoscaler_schedule="5:2, 10:1",
        autoscaler_interval_s=5.0,
        autoscaler_down_window_s=0.0,
        max_replicas=2,
    )
    assert states(result, 1) == [(0.0, State.OFF), (5.0, State.STARTING), (10.0, State.OFF)]


def test_a_warm_reserve_serves_at_once_is_filled_again_and_costs():
    result = run(
        workload([0.0, 60.0]),
        warm_replicas=1,
        autoscaler="scheduled",
        autoscaler_schedule="5:2",
        autoscaler_interval_s=5.0,
        max_replicas=2,
    )
    assert states(result, 1) == [(0.0, State.OFF), (0.0, State.WARM), (5.0, State.READY)]
    assert states(result, 2) == [(0.0, State.OFF), (5.0, State.STARTING), (15.0, State.WARM)]
    end_s = result.scaling.end_s
    assert result.scaling.seconds([State.WARM]) == pytest.approx(5.0 + end_s - 15.0)


def test_gpu_seconds_are_the_time_from_asking_to_leaving():
    result = run(
        workload([0.0, 60.0]),
        autoscaler="scheduled",
        autoscaler_schedule="5:2, 40:1",
        autoscaler_interval_s=5.0,
        autoscaler_down_window_s=0.0,
        max_replicas=2,
    )
    used = [state for state in State if state != State.OFF]
    assert result.scaling.seconds(used) == pytest.approx(result.scaling.end_s + 35.0)
    times_s, counts = result.scaling.counts([State.READY])
    assert list(zip(times_s.tolist(), counts.tolist(), strict=True))[-3:] == [
        (0.0, 1),
        (15.0, 2),
        (40.0, 1),
    ]


# --- failures ----------------------------------------------------------------------------------


def test_a_crash_loses_what_nobody_sends_again():
    result = run(workload(burst(20), output_tokens=2000), failures="crash@1:0")
    assert not result.completed.any()
    assert (result.refusal == Refusal.FAILED).all()
    assert result.refused_s.tolist() == pytest.approx([1.0] * 20)


def test_after_a_crash_clients_try_again_and_the_replica_has_an_empty_cache():
    client = ClientPolicy(client_retries=1, client_backoff_s=2.0, client_jitter=0.0)
    result = run(workload(burst(20), output_tokens=500, client=client), failures="crash@1:0")
    assert result.completed.all()
    assert (result.scaling.attempts == 2).all()
    # Down from 1 to 11 s; the attempts come at 3 s and wait.
    assert result.routed_s.tolist() == pytest.approx([11.0] * 20)
    assert [state for _, state in states(result, 0)] == [
        State.OFF,
        State.READY,
        State.FAILED,
        State.STARTING,
        State.READY,
    ]


def test_a_slow_replica_takes_its_factor_as_long():
    load = workload([0.0], output_tokens=100)
    alone_s = run(load).finish_s[0]
    slow_s = run(load, failures="slow@0:0x3x1000").finish_s[0]
    # Time 0 comes after the arrival's first step has begun, or before.
    assert slow_s == pytest.approx(3 * alone_s, rel=0.05)


def test_a_router_that_restarts_breaks_connections_and_lets_new_requests_wait():
    client = ClientPolicy(client_retries=1, client_backoff_s=0.0)
    load = workload([0.0, 2.0], output_tokens=4000, client=client)
    result = run(load, failures="router@1x5")
    assert result.scaling.attempts.tolist() == [2, 1]
    assert result.routed_s.tolist() == pytest.approx([6.0, 6.0])


def test_an_impatient_client_is_counted_once():
    client = ClientPolicy(client_timeout_s=0.5, client_retries=2, client_jitter=0.0)
    result = run(workload(burst(200), output_tokens=300, client=client))
    lost = result.refusal == Refusal.TIMED_OUT
    assert lost.any()
    assert (lost ^ result.completed).all()
    assert (result.scaling.attempts[lost] == 3).all()


FAILURES = st.lists(
    st.one_of(
        st.builds("crash@{}:{}".format, st.integers(0, 20), st.integers(0, 1)),
        st.builds("gpu_loss@{}:{}x7".format, st.integers(0, 20), st.integers(0, 1)),
        st.builds("slow@{}:{}x2.5x5".format, st.integers(0, 20), st.integers(0, 1)),
        st.builds("router@{}x3".format, st.integers(0, 20)),
    ),
    max_size=4,
)


@st.composite
def troubles(draw):
    n = draw(st.integers(1, 60))
    arrival_s = sorted(draw(st.lists(st.floats(0, 20), min_size=n, max_size=n)))
    outputs = draw(st.lists(st.integers(1, 400), min_size=n, max_size=n))
    client = ClientPolicy(
        client_timeout_s=draw(st.sampled_from([None, 0.3, 5.0])),
        client_retries=draw(st.integers(0, 3)),
        client_backoff_s=draw(st.sampled_from([0.0, 0.4])),
        client_cancel_share=draw(st.sampled_from([0.0, 0.5])),
        client_cancel_after_s=0.3,
    )
    cap = draw(st.sampled_from([None, 4]))
    load = workload(arrival_s, outputs, client, cap, prompt=draw(st.sampled_from([64, 1500])))
    options = {"failures": ", ".join(draw(FAILURES)) or None, "failure_rate_per_hour": 200.0}
    if draw(st.booleans()):
        options |= {
            "autoscaler": "keda",
            "autoscaler_metric": draw(st.sampled_from(["concurrency", "kv_use", "request_rate"])),
            "autoscaler_target": 2.0,
            "autoscaler_interval_s": 3.0,
            "autoscaler_scrape_delay_s": 1.0,
            "autoscaler_down_window_s": 0.0,
            "min_replicas": 0,
            "max_replicas": 4,
        }
    return load, options


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "trtllm", "static"])
@settings(max_examples=25, deadline=None)
@given(troubles(), st.booleans())
def test_under_failures_every_request_is_answered_or_lost_once(scheduler, trouble, ahead):
    """The recorder counts every token; the engines hold nothing at the end."""
    load, options = trouble
    result = run(
        load, seconds(4.0), replicas=2, scheduler=scheduler, blocks=160, ahead=ahead, **options
    )
    lost = result.refusal >= Refusal.FAILED
    assert (lost ^ result.completed).all()
    done = result.completed
    assert (result.finish_s[done] >= result.first_token_s[done]).all()
    assert (result.first_token_s[done] > result.sent_s[done]).all()
    assert (result.routed_s[done] >= result.arrived_s[done] - 1e-9).all()
    assert (result.scaling.attempts <= 1 + load.client.client_retries).all()


@settings(max_examples=25, deadline=None)
@given(troubles(), st.booleans())
def test_leaps_change_nothing(trouble, ahead):
    load, options = trouble
    leaped, stepped = (
        run(load, seconds(4.0), 2, leap=leap, ahead=ahead, **options) for leap in (True, False)
    )
    assert leaped.refusal.tolist() == stepped.refusal.tolist()
    assert leaped.replica.tolist() == stepped.replica.tolist()
    np.testing.assert_allclose(leaped.finish_s, stepped.finish_s, rtol=0, atol=1e-6)
    np.testing.assert_allclose(leaped.scaling.changes, stepped.scaling.changes, atol=1e-6)


def test_the_same_seed_gives_the_same_run():
    load = workload(
        np.linspace(0, 30, 100), 300, ClientPolicy(client_timeout_s=1.0, client_retries=2)
    )
    first, again, other = (
        run(load, replicas=2, seed=seed, failure_rate_per_hour=200.0) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.finish_s, again.finish_s, equal_nan=True)
    assert np.array_equal(first.scaling.changes, again.scaling.changes)
    assert not np.array_equal(first.scaling.changes, other.scaling.changes)


def test_without_events_an_elastic_run_is_the_plain_one():
    load = workload(np.linspace(0, 5, 200), 50)
    patient = replace(load, client=ClientPolicy(client_retries=1))
    limits = EngineLimits(max_num_seqs=16, max_num_batched_tokens=512)
    spec = ClusterSpec(
        timer=AffineTimer(),
        limits=limits,
        num_blocks=4096,
        max_model_len=10_000,
        replicas=3,
        routing=RouterOptions(router="least_outstanding"),
    )
    plain, elastic = run_cluster(spec, load), run_cluster(spec, patient)
    assert np.array_equal(plain.finish_s, elastic.finish_s)
    assert math.isclose(elastic.scaling.end_s, plain.finish_s.max())
