"""KV below GPU memory: what is stored, found and loaded, and that it moves latency as it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.kv_tiers import KvTiers, TierSpec
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.prefix_index import PrefixIndex
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.deployment import Deployment
from dynosim.sim.engine.engine import Engine, EngineLimits
from dynosim.sim.metrics import summarize
from dynosim.sim.random_streams import stream
from dynosim.sim.results import RunResult
from dynosim.sim.simulate import simulate
from dynosim.sim.tiers.channel import Channel
from dynosim.sim.tiers.stack import SharedStorage, TierStack
from dynosim.sim.tiers.tier import Tier
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec
from workloads import workload, workloads

BLOCK_BYTES = 1000.0
LIMITS = EngineLimits(max_num_seqs=8, max_num_batched_tokens=512)


def tiers(*specs: TierSpec, **changes: Any) -> KvTiers:
    plain = KvTiers(
        tiers=specs,
        block_bytes=BLOCK_BYTES,
        link_bytes_s=1e6,
        writes_through=True,
        loads_always=False,
        most_loads=8,
    )
    return replace(plain, **changes)


def host(blocks: int = 10_000, latency_s: float = 0.0) -> TierSpec:
    return TierSpec(
        name="host",
        capacity_bytes=blocks * BLOCK_BYTES,
        bandwidth_bytes_s=1e6,
        latency_s=latency_s,
    )


def spec(below: KvTiers | None, num_blocks: int = 40, **limits: Any) -> ClusterSpec:
    values = {"max_num_seqs": 8, "max_num_batched_tokens": 512} | limits
    return ClusterSpec(
        timer=AffineTimer(),
        limits=EngineLimits(**values),
        num_blocks=num_blocks,
        max_model_len=10_000,
        tiers=below,
    )


# --- parts -------------------------------------------------------------------------------------


def test_copies_that_come_at_once_follow_each_other() -> None:
    link = Channel("link", 100.0)
    assert [link.carry(1.0, 50.0) for _ in range(4)] == [1.5, 2.0, 2.5, 3.0]
    assert link.carry(10.0, 50.0) == 10.5
    assert link.busy_s == 2.5
    assert link.carried_bytes == 250.0


def test_a_tier_forgets_what_was_used_longest_ago() -> None:
    tier = Tier(host(blocks=2), BLOCK_BYTES, ())
    assert tier.put(1, 0.0) is None
    assert tier.put(2, 0.0) is None
    tier.touch(1)
    assert tier.put(3, 0.0) == 2
    assert Tier(host(blocks=0), BLOCK_BYTES, ()).put(1, 0.0) == 1


def test_what_one_tier_has_no_room_for_goes_to_the_next() -> None:
    disk = replace(host(), name="disk", bandwidth_bytes_s=1e4, latency_s=0.5)
    below = tiers(host(blocks=2), disk)
    stack = TierStack(below, 1, SharedStorage(below, 1))
    stack.stored([1, 2, 3], 0, 3)
    # The last of the prefix came first and goes first.
    assert [len(tier) for tier in stack.tiers] == [2, 1]
    plan = stack.find([1, 2, 3, 4], 0, 4)
    assert plan.units == [1, 2, 3]
    assert [tier.spec.name for tier in plan.tiers] == ["host", "host", "disk"]
    # A block takes 1 ms over the link and 0.1 s on the disk, which has just written it.
    assert stack.load(plan) == pytest.approx(0.6, abs=0.2)


# --- by hand -----------------------------------------------------------------------------------

PREFIXES = [[1, 2, 3, 4], [11, 12, 13, 14, 15, 16, 17, 18], [1, 2, 3, 4]]


def three(below: KvTiers | None, **limits: Any) -> RunResult:
    """A prompt of 4 blocks and a bit; another that evicts it from a pool of 10; the first again."""
    load = workload([0.0, 1.0, 2.0], [65, 145, 65], [1, 1, 1], PREFIXES, block=16)
    return run_cluster(spec(below, num_blocks=10, **limits), load)


@pytest.mark.parametrize("scheduler", ["vllm", "sglang"])
def test_a_prefix_that_was_evicted_comes_back_over_the_link(scheduler: str) -> None:
    limits = {"scheduler": scheduler}
    assert three(None, **limits).cached_tokens.tolist() == [0, 0, 0]
    result = three(tiers(host(), link_bytes_s=4e6), **limits)
    assert result.cached_tokens.tolist() == [0, 0, 64]
    assert result.tiers is not None
    # Four blocks of 1,000 bytes at 4 MB/s: 1 ms, and then one token is computed.
    assert (result.tiers.end_s - result.tiers.start_s).tolist() == pytest.approx([0.001])
    assert result.scheduled_s[2] == pytest.approx(2.001)
    step_s = AffineTimer().step_s(1, 1, AffineTimer().prefill_attention_s(1, 64), 0, 0)
    assert result.first_token_s[2] == pytest.approx(2.001 + step_s)
    assert [(t.name, t.loaded_tokens) for t in result.tiers.tiers] == [("host", 64)]


def test_a_slow_link_is_left_alone_unless_told_otherwise() -> None:
    slow = tiers(host(), link_bytes_s=4e4)
    result = three(slow)
    assert result.cached_tokens.tolist() == [0, 0, 0]
    assert result.tiers is not None
    assert not len(result.tiers.request)
    always = three(replace(slow, loads_always=True))
    assert always.scheduled_s[2] == pytest.approx(2.1)
    assert always.first_token_s[2] > result.first_token_s[2]


def test_written_on_eviction_is_found_as_well() -> None:
    result = three(tiers(host(), link_bytes_s=4e6, writes_through=False))
    assert result.cached_tokens.tolist() == [0, 0, 64]
    assert result.tiers is not None
    # Four blocks of the first prompt, then of the second: three fit beside four in a pool of ten.
    assert result.tiers.tiers[0].stored_tokens < three(tiers(host())).tiers.tiers[0].stored_tokens  # type: ignore[union-attr]


def test_others_go_on_while_kv_comes() -> None:
    load = workload(
        [0.0, 1.0, 2.0, 2.0], [65, 145, 65, 20], [1, 1, 1, 1], [*PREFIXES, [99]], block=16
    )
    below = tiers(host(), link_bytes_s=2e5, loads_always=True)
    result = run_cluster(spec(below, num_blocks=12), load)
    assert result.scheduled_s[3] == pytest.approx(2.0)
    # Two of its four blocks were still there.
    assert result.scheduled_s[2] == pytest.approx(2.01)


def test_loads_compete_for_the_link() -> None:
    prefixes = [[i * 100 + j for j in range(4)] for i in range(4)]
    flush = [[1000 + j for j in range(24)]]
    load = workload(
        [*(0.1 * i for i in range(4)), 1.0, *[2.0] * 4],
        [65] * 4 + [400] + [65] * 4,
        [1] * 9,
        prefixes + flush + prefixes,
        block=16,
    )
    below = tiers(host(), link_bytes_s=4e5, loads_always=True)
    result = run_cluster(spec(below, num_blocks=26), load)
    assert result.tiers is not None
    took_s = sorted((result.tiers.end_s - result.tiers.start_s).tolist())
    assert took_s == pytest.approx([0.01, 0.02, 0.03, 0.04], abs=1e-9)


def test_shared_storage_serves_what_another_replica_computed() -> None:
    shared = replace(host(), name="shared", total_bandwidth_bytes_s=1e7)
    load = workload([0.0, 1.0], [65, 65], [1, 1], [PREFIXES[0]] * 2, block=16)
    own = replace(spec(tiers(host(), loads_always=True)), replicas=2)
    assert run_cluster(own, load).cached_tokens.tolist() == [0, 0]
    both = replace(spec(tiers(shared, loads_always=True)), replicas=2)
    result = run_cluster(both, load)
    assert result.replica.tolist() == [0, 1]
    assert result.cached_tokens.tolist() == [0, 64]


# --- laws --------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(
    load=workloads(longest=300),
    scheduler=st.sampled_from(["vllm", "sglang"]),
    num_blocks=st.sampled_from([34, 40, 64]),
    blocks_below=st.sampled_from([5, 1000]),
    max_num_seqs=st.integers(1, 8),
    budget=st.sampled_from([64, 256]),
    writes_through=st.booleans(),
    link_bytes_s=st.sampled_from([1e5, 1e7]),
    most_loads=st.integers(1, 4),
    is_async=st.booleans(),
)
def test_every_request_is_served_and_leaping_changes_nothing(
    load: Workload,
    scheduler: str,
    num_blocks: int,
    blocks_below: int,
    max_num_seqs: int,
    budget: int,
    writes_through: bool,
    link_bytes_s: float,
    most_loads: int,
    is_async: bool,
) -> None:
    below = tiers(
        host(blocks_below, latency_s=0.0007),
        link_bytes_s=link_bytes_s,
        loads_always=True,
        writes_through=writes_through,
        most_loads=most_loads,
    )
    leaping = spec(
        below,
        num_blocks,
        scheduler=scheduler,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        async_scheduling=is_async,
    )
    fast = run_cluster(leaping, load)
    slow = run_cluster(replace(leaping, limits=replace(leaping.limits, max_run=1)), load)
    assert fast.completed.all()
    np.testing.assert_allclose(fast.finish_s, slow.finish_s, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(fast.cached_tokens, slow.cached_tokens)
    assert fast.tiers is not None
    assert slow.tiers is not None
    np.testing.assert_allclose(fast.tiers.end_s, slow.tiers.end_s, rtol=0, atol=1e-9)


def test_without_anything_to_find_tiers_change_nothing() -> None:
    load = workload([0.0, 0.1, 0.2], [100, 200, 300], [20, 30, 40])
    plain, below = run_cluster(spec(None), load), run_cluster(spec(tiers(host())), load)
    np.testing.assert_array_equal(plain.finish_s, below.finish_s)


def test_the_benefit_has_one_maximum_in_the_working_set() -> None:
    # Prompts of 20 blocks drawn from ever more families: few fit the GPU, some the host as well.
    gains = []
    for families in (2, 8, 16, 32, 64, 256):
        draw = stream(1, "families").integers(0, families, 300)
        prefixes = [[int(f) * 1000 + j for j in range(20)] for f in draw]
        arrival_s = (0.05 * np.arange(300)).tolist()
        load = workload(arrival_s, [330] * 300, [8] * 300, prefixes, block=16)
        ttft_ms = [
            summarize(run_cluster(spec(below, num_blocks=120), load))["mean_ttft_ms"]
            for below in (None, tiers(host(blocks=640), link_bytes_s=1e7))
        ]
        gains.append(1.0 - ttft_ms[1] / ttft_ms[0])
    best = int(np.argmax(gains))
    assert gains[0] == pytest.approx(0.0, abs=0.02)
    assert gains[best] > 0.3
    assert 0 < best < len(gains) - 1
    assert all(np.diff(gains[: best + 1]) >= -0.02)
    assert all(np.diff(gains[best:]) <= 0.02)


# --- deployments -------------------------------------------------------------------------------

LLAMA = Deployment(model="meta-llama/Llama-3.1-8B-Instruct", gpu="h100_sxm", backend="vllm")


def test_a_deployment_has_tiers_by_its_fields() -> None:
    prefixes = WorkloadSpec(
        random_input_len=200,
        random_output_len=20,
        random_prefix_len=8000,
        num_prefixes=100,
        request_rate=4.0,
        num_prompts=300,
    )
    load = build_workload(prefixes)
    plain = simulate(LLAMA, load).metrics()
    hosted = simulate(replace(LLAMA, kv_host_gib=200.0), load)
    assert hosted.metrics()["mean_ttft_ms"] < 0.8 * plain["mean_ttft_ms"]
    assert hosted.metrics()["prefix_hit_rate"] > plain["prefix_hit_rate"] + 0.1


@pytest.mark.parametrize(
    "fields",
    [
        {"backend": "trtllm"},
        {"scheduling_policy": "priority"},
        {"enable_prefix_caching": False},
        {"backend": "sglang", "scheduler_recv_interval": 4},
    ],
)
def test_what_is_not_modelled_together_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="kv_host_gib"):
        simulate(
            replace(LLAMA, kv_host_gib=1.0, **fields), build_workload(WorkloadSpec(num_prompts=2))
        )


# --- routers that see tiers --------------------------------------------------------------------


def test_a_router_that_sees_tiers_sends_prompts_where_their_prefixes_went() -> None:
    """Sixteen prompts of which a GPU keeps one, one after the other, and all of them again."""
    prefixes = [[100 * i + block for block in range(1, 9)] for i in range(16)] * 2
    n = len(prefixes)
    load = workload(np.arange(n).tolist(), [130] * n, [1] * n, prefixes, block=16)

    def replicas(weight: float, below: KvTiers) -> IntArray:
        routing = RouterOptions(
            router="kv_aware", router_host_weight=weight, router_disk_weight=weight
        )
        cluster = replace(spec(below, num_blocks=12), replicas=2, routing=routing)
        return run_cluster(cluster, load).replica.reshape(2, -1)

    for below in (tiers(host()), tiers(host(blocks=4), replace(host(), name="disk"))):
        first, again = replicas(1.0, below)
        assert first.tolist() == again.tolist()
        first, again = replicas(0.0, below)
        assert 2 < (first == again).sum() < 14


def test_what_lies_below_begins_where_the_gpu_ends() -> None:
    index = PrefixIndex(Requests(workload([0.0], [130], [1], [list(range(1, 9))], 16), LIMITS))
    below = tiers(host())
    stacks = [TierStack(below, 1, SharedStorage(below, 1)) for _ in range(2)]
    stacks[1].stored(list(range(1, 6)), 0, 5)
    index.follow([Engine(AffineTimer(), LIMITS, 40).kv for _ in range(2)], 2)
    assert index.below(0, [0, 0]) is None
    index.look_below(stacks)
    assert index.below(0, [0, 0]) == [(0, 0), (5, 0)]
    # What the GPU has already is not counted again; behind a gap nothing is.
    assert index.below(0, [0, 3]) == [(0, 0), (2, 0)]
    assert index.below(0, [0, 6]) == [(0, 0), (0, 0)]
