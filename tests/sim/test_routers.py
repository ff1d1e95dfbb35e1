"""What every router keeps, whichever schedulers are behind it; and what each one is for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from caches import cached_units
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import module_names
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.cluster.hash_ring import HashRing, hash_key
from dynosim.sim.cluster.prefix_index import PrefixIndex
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.routing import Routing
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.engine.schedulers.base import BlockPool
from dynosim.sim.metrics import summarize
from dynosim.sim.results import RunResult
from dynosim.sim.workload.columns import Workload
from frontends import FRONTENDS
from test_leap import TIMERS, both
from workloads import workload, workloads

ROUTERS = module_names("dynosim.sim.cluster.routers")
SCHEDULERS = module_names("dynosim.sim.engine.schedulers")


def spec(
    options: RouterOptions, *, replicas: int = 3, num_blocks: int = 60, scheduler: str = "vllm"
) -> ClusterSpec:
    return ClusterSpec(
        timer=AffineTimer(),
        limits=EngineLimits(
            max_num_seqs=4,
            max_num_batched_tokens=64 if scheduler == "vllm" else 2048,
            scheduler=scheduler,
        ),
        num_blocks=num_blocks if scheduler == "vllm" else 4 * num_blocks,
        max_model_len=10_000,
        replicas=replicas,
        routing=options,
    )


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("router", ROUTERS)
@settings(max_examples=6, deadline=None)
@given(load=workloads(), seed=st.integers(0, 3), router_replicas=st.integers(1, 3))
def test_every_request_is_served_once_and_the_same_way_twice(
    router: str, scheduler: str, load: Workload, seed: int, router_replicas: int
) -> None:
    cluster = spec(
        RouterOptions(router=router, router_replicas=router_replicas), scheduler=scheduler
    )
    first, second = run_cluster(cluster, load, seed), run_cluster(cluster, load, seed)
    assert first.completed.all()
    assert np.array_equal(first.replica, second.replica)
    assert np.array_equal(first.finish_s, second.finish_s)


@pytest.mark.parametrize("router", ROUTERS)
@settings(max_examples=25, deadline=None)
@given(
    load=workloads(),
    timer=st.sampled_from(TIMERS),
    num_blocks=st.sampled_from([34, 60, 400]),
    lag_s=st.sampled_from([0.0, 0.0, 0.05]),
    scheduler=st.sampled_from(["vllm", "sglang"]),
    asynchronous=st.booleans(),
)
def test_a_router_sees_the_same_whether_engines_leap_or_step(
    router: str,
    load: Workload,
    timer: AffineTimer,
    num_blocks: int,
    lag_s: float,
    scheduler: str,
    asynchronous: bool,
) -> None:
    cluster = spec(
        RouterOptions(router=router, router_event_lag_s=lag_s if router == "kv_aware" else 0.0),
        replicas=3 if load.max_concurrency is None else 1,
        num_blocks=num_blocks,
        scheduler=scheduler,
    )
    limits = replace(cluster.limits, async_scheduling=asynchronous)
    both(replace(cluster, timer=timer, limits=limits), load, seed=5)


@pytest.mark.parametrize("router", ROUTERS)
@settings(max_examples=15, deadline=None)
@given(
    load=workloads().filter(lambda load: load.max_concurrency is None),
    frontend=st.sampled_from(FRONTENDS),
    ranks=st.sampled_from([1, 1, 2]),
    deadline_ms=st.sampled_from([None, None, 40.0]),
)
def test_without_a_common_clock_all_is_as_with_one(
    router: str, load: Workload, frontend: Frontend, ranks: int, deadline_ms: float | None
) -> None:
    options = RouterOptions(router=router, router_ttft_deadline_ms=deadline_ms)
    cluster = replace(spec(options), frontend=frontend, ranks=ranks)

    def run(*, is_live: bool) -> RunResult:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Routing, "is_live", is_live)
            return run_cluster(cluster, load, seed=3)

    abreast, together = run(is_live=False), run(is_live=True)
    for column in ("replica", "cached_tokens", "preemptions", "refusal"):
        assert np.array_equal(getattr(abreast, column), getattr(together, column)), column
    for column in ("routed_s", "scheduled_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(
            getattr(abreast, column), getattr(together, column), rtol=0, atol=1e-9, err_msg=column
        )


@settings(max_examples=150, deadline=None)
@given(
    load=workloads(),
    num_blocks=st.sampled_from([34, 60]),
    scheduler=st.sampled_from(["vllm", "sglang"]),
)
def test_without_a_lag_the_index_knows_what_is_cached(
    load: Workload, num_blocks: int, scheduler: str
) -> None:
    pools: list[BlockPool] = []
    follow, overlaps = PrefixIndex.follow, PrefixIndex.overlaps

    def followed(index: PrefixIndex, caches: list[BlockPool], num_replicas: int) -> None:
        pools[:] = caches
        follow(index, caches, num_replicas)

    def checked(index: PrefixIndex, request: int) -> list[int]:
        found = list(overlaps(index, request))
        bounds = load.prefix_offsets[request : request + 2]
        units = load.prefix_ids[bounds[0] : bounds[1]].tolist()
        assert found == [cached_units(pool, units) for pool in pools]
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrefixIndex, "follow", followed)
        patch.setattr(PrefixIndex, "overlaps", checked)
        run_cluster(
            spec(RouterOptions(router="kv_aware"), num_blocks=num_blocks, scheduler=scheduler), load
        )
    assert pools


@pytest.mark.parametrize("router", ROUTERS)
def test_routers_choose_among_those_they_are_shown(router: str) -> None:
    # Replicas take one request at a time, so that only some are open when the next one comes.
    options = RouterOptions(router=router, router_max_outstanding=1)
    load = workload([0.0, 0.001, 0.002, 0.003], [40] * 4, [50] * 4, [[1, 2]] * 4, 16)
    result = run_cluster(spec(options), load)
    assert sorted(result.replica[:3]) == [0, 1, 2]
    assert result.routed_s[3] == pytest.approx(result.finish_s[:3].min())


# --- what each is for -----------------------------------------------------------------------------


def test_round_robin_passes_over_replicas_that_are_not_shown() -> None:
    options = RouterOptions(router_max_outstanding=1)
    load = workload([0.0, 0.001, 0.002, 0.5, 0.6], [16] * 5, [400, 2, 400, 2, 2])
    assert run_cluster(spec(options), load).replica.tolist() == [0, 1, 2, 1, 1]


def prefixed(families: list[int], gap_s: float = 0.1, blocks: int = 4) -> Workload:
    n = len(families)
    prefixes = [[100 * family + i for i in range(blocks)] for family in families]
    return workload((np.arange(n) * gap_s).tolist(), [16 * blocks + 8] * n, [20] * n, prefixes, 16)


def hit_rate(options: RouterOptions, load: Workload, **more: int) -> float:
    return summarize(run_cluster(spec(options, **more), load))["prefix_hit_rate"]


@pytest.mark.parametrize(
    "router", ["session_affinity", "prefix_hash", "kv_aware", "weighted_score", "cost_aware"]
)
def test_who_looks_at_prefixes_finds_them_again(router: str) -> None:
    load = prefixed(list(range(10)) * 4, gap_s=0.5)
    # Of each ten all but the first could hit, with 64 of 72 tokens; spread over three replicas,
    # some of the others are first there.
    ideal = 30 / 40 * 64 / 72
    assert hit_rate(RouterOptions(router=router), load, num_blocks=400) == pytest.approx(ideal)
    assert hit_rate(RouterOptions(router="random"), load, num_blocks=400) < 0.7 * ideal


def test_turns_of_a_session_stay_together_whatever_their_prefixes() -> None:
    load = replace(prefixed(list(range(30))), session=np.arange(30) % 6)
    replica = run_cluster(spec(RouterOptions(router="session_affinity")), load).replica
    for session in range(6):
        assert len(set(replica[load.session == session])) == 1
    assert len(set(replica)) > 1


def test_kv_aware_weighs_blocks_cached_against_blocks_in_flight() -> None:
    # Replica 0 has the four blocks cached. A prompt of four and a half costs 4.5 - 4 there and 4.5
    # elsewhere, besides five blocks for each prompt that is in flight there.
    once = [0.0, 1.0]
    prefixes = [[1, 2, 3, 4]] * 4
    options = RouterOptions(router="kv_aware")

    def replicas(arrival_s: list[float]) -> list[int]:
        n = len(arrival_s)
        load = workload(arrival_s, [72] * n, [20] * n, prefixes[:n], 16)
        return run_cluster(spec(options, replicas=2), load).replica.tolist()

    first = replicas(once)[0]
    assert replicas(once)[1] == first
    # The second finds nobody in flight, the third the second: 0.5 + 5 blocks are more than 4.5.
    assert replicas([*once, 1.05]) == [first, first, 1 - first]


def test_without_credit_kv_aware_balances_blocks() -> None:
    load = prefixed([0] * 30)
    credit = hit_rate(RouterOptions(router="kv_aware"), load)
    none = hit_rate(RouterOptions(router="kv_aware", router_overlap_weight=0.0), load)
    assert none < credit


def test_a_higher_temperature_spreads_more() -> None:
    load = prefixed([0] * 60)
    rates = [
        hit_rate(RouterOptions(router="kv_aware", router_temperature=t), load) for t in (0.0, 5.0)
    ]
    replicas = run_cluster(
        spec(RouterOptions(router="kv_aware", router_temperature=5.0)), load
    ).replica
    assert rates[0] >= rates[1]
    assert np.bincount(replicas).min() >= 10


def test_events_that_arrive_late_leave_hits_undiscovered() -> None:
    load = prefixed([0, 1, 2, 3, 4, 5, 6] * 6, gap_s=0.1)
    at_once, late = (
        hit_rate(RouterOptions(router="kv_aware", router_event_lag_s=lag_s), load)
        for lag_s in (0.0, 100.0)
    )
    assert at_once == pytest.approx(35 / 42 * 64 / 72)
    assert late < 0.8 * at_once


def test_routers_side_by_side_know_of_their_own_requests_only() -> None:
    load = workload([i * 1e-4 for i in range(30)], [16] * 30, [100] * 30)

    def busiest(router_replicas: int) -> int:
        options = RouterOptions(router="least_outstanding", router_replicas=router_replicas)
        return int(np.bincount(run_cluster(spec(options), load, 4).replica).max())

    assert busiest(1) == 10
    assert busiest(30) > 10


def test_cost_aware_goes_where_the_first_token_comes_soonest() -> None:
    # Replica A has ten short prompts' worth of decodes, B one long prompt to prefill.
    load = workload([0.0, 0.001, 0.002], [16, 6000, 16], [200, 2, 2])
    cluster = spec(RouterOptions(router="cost_aware"), replicas=2, num_blocks=800)
    replica = run_cluster(cluster, load).replica
    assert replica[1] != replica[0]
    assert replica[2] == replica[0]


# --- affinity can lose ----------------------------------------------------------------------------


def skewed(n: int = 400) -> Workload:
    """One prompt in two has the same prefix, which saves three quarters of its work."""
    families = [0 if i % 2 else i for i in range(n)]
    prefixes = [[100 * f + j for j in range(12)] for f in families]
    return workload((np.arange(n) * 0.018).tolist(), [16 * 16] * n, [40] * n, prefixes, 16)


def mean_ttft_ms(result: RunResult) -> float:
    return summarize(result)["mean_ttft_ms"]


def test_on_a_skewed_load_affinity_without_a_bound_loses_to_no_affinity() -> None:
    def ttft_ms(**options: object) -> float:
        cluster = spec(RouterOptions(**options), replicas=8, num_blocks=400)  # type: ignore[arg-type]
        return mean_ttft_ms(run_cluster(cluster, skewed()))

    unbounded = ttft_ms(router="prefix_hash", router_load_bound=float("inf"))
    bounded = ttft_ms(router="prefix_hash", router_load_bound=1.25)
    shortest = ttft_ms(router="least_outstanding")
    assert unbounded > 3 * shortest
    assert bounded < 1.2 * shortest


@settings(max_examples=50)
@given(load=st.lists(st.integers(0, 5), min_size=20, max_size=60), bound=st.floats(1.0, 3.0))
def test_no_replica_gets_more_than_the_bound_over_the_mean(load: list[int], bound: float) -> None:
    # All come at once, so outstanding requests are all those so far.
    requests = prefixed(load, gap_s=0.0)
    options = RouterOptions(router="prefix_hash", router_load_bound=bound)
    replica = run_cluster(spec(options), requests).replica
    for i in range(1, len(load) + 1):
        assert np.bincount(replica[:i]).max() <= np.ceil(bound * i / 3)


def test_a_ring_of_one_more_replica_takes_keys_from_all_and_moves_no_other() -> None:
    keys = [hash_key([i]) for i in range(20_000)]
    before, after = HashRing(8, seed=1), HashRing(9, seed=1)
    moved = [after.owner(k) for k in keys if before.owner(k) != after.owner(k)]
    assert set(moved) == {8}
    assert len(moved) / len(keys) == pytest.approx(1 / 9, rel=0.3)


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "where", "hint"),
    [
        (dict(router="round_robin", router_temperature=0.5), "router_temperature", "kv_aware"),
        (dict(router="kv_aware", router_load_bound=2.0), "router_load_bound", "prefix_hash"),
        (dict(router_overload="shed"), "router_overload", "router_max_outstanding"),
        (dict(router_queue_policy="lcfs"), "router_queue_policy", "router_max_waiting"),
        (
            dict(router_max_waiting=1, router_overload="shed", router_max_queue=4),
            "router_max_queue",
            "while router_overload is wait",
        ),
        (dict(router="kv_awre"), "", "nearest: kv_aware"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    options: dict[str, object], where: str, hint: str
) -> None:
    with pytest.raises(UserError) as error:
        run_cluster(spec(RouterOptions(**options)), workload([0.0], [5], [5]))  # type: ignore[arg-type]
    assert error.value.where == where
    assert hint in str(error.value)
