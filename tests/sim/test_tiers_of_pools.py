"""KV tiers on prefill and decode engines, and of replicas that come and go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.kv_tiers import KvTiers, TierSpec
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import request_latencies_s
from dynosim.sim.refusal import Refusal
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.client import ClientPolicy
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec
from pools import FIRST_TOKENS, pools, wire
from scaled_pools import scaled
from workloads import workload, workloads

BLOCK_BYTES = 1000.0
STEADY = AffineTimer(
    base_s=0.010, per_token_s=0.0, per_pair_s=0.0, per_sequence_s=0.0, per_context_s=0.0
)
A, B = [[family * 100 + i for i in range(6)] for family in (1, 2)]


def tiers(name: str = "host", link_bytes_s: float = 1e6, **changes: Any) -> KvTiers:
    total = 1e9 if name == "shared" else None
    tier = TierSpec(
        name=name,
        capacity_bytes=1e6,
        bandwidth_bytes_s=1e9,
        latency_s=0.0,
        total_bandwidth_bytes_s=total,
    )
    plain = KvTiers(
        tiers=(tier,),
        block_bytes=BLOCK_BYTES,
        link_bytes_s=link_bytes_s,
        writes_through=True,
        loads_always=True,
        most_loads=4,
    )
    return replace(plain, **changes)


def with_tiers(
    spec: ClusterSpec, decode: KvTiers | None = None, prefill: KvTiers | None = None
) -> ClusterSpec:
    assert spec.prefill is not None
    pool = replace(spec.prefill.pool, tiers=prefill)
    return replace(spec, tiers=decode, prefill=replace(spec.prefill, pool=pool))


# --- by hand -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["vllm", "sglang"])
def test_a_prefill_engine_loads_a_prefix_that_it_has_no_longer(scheduler: str):
    # Seven blocks hold one of these; the second evicts the first, which then comes back.
    load = workload([0.0, 1.0, 2.0], [97, 97, 97], [2, 2, 2], [A, B, A], block=16)
    spec = pools(scheduler, timer=STEADY, prefill_blocks=7, num_blocks=64, caching=True)
    plain = run_cluster(spec, load)
    assert plain.cached_tokens.tolist() == [0, 0, 0]
    result = run_cluster(with_tiers(spec, prefill=tiers()), load)
    assert result.cached_tokens.tolist() == [0, 0, 96]
    assert result.hand_overs is not None
    assert result.hand_overs.tiers is not None
    assert result.tiers is None
    assert request_latencies_s(result)["kv_load"].tolist() == pytest.approx([0.0, 0.0, 0.006])
    assert result.scheduled_s[2] == pytest.approx(2.006)


def test_copies_and_transfers_share_the_links_that_they_pass():
    """A prompt's six full blocks are copied to the host (60 ms) before its KV may leave."""
    load = workload([0.0], [97], [2], [A], block=16)
    transfer = wire("handed_over", bytes_s=97e3 / 0.030)
    spec = pools("vllm", transfer, timer=STEADY, caching=True)
    slow = tiers(link_bytes_s=100e3)

    def transfer_s(fabric: Any, on_prefill: KvTiers | None) -> float:
        assert spec.prefill is not None
        split = replace(spec.prefill, transfer=replace(transfer, fabric=fabric))
        own = with_tiers(replace(spec, prefill=split), prefill=on_prefill)
        hand_overs = run_cluster(own, load).hand_overs
        assert hand_overs is not None
        return float(hand_overs.transfer_s[0])

    assert transfer_s("network", None) == pytest.approx(0.030)
    # 6,000 bytes of copies from 0 to 60 ms, queued before the step ends at 10 ms, then 97,000.
    assert transfer_s("network", slow) == pytest.approx(0.060 - 0.010 + 0.970)
    assert transfer_s("pcie", slow) == pytest.approx(0.060 - 0.010 + 0.970)
    assert transfer_s("nvlink", slow) == pytest.approx(0.030)


def test_what_a_decode_engine_offloads_to_shared_storage_prefill_engines_find():
    """Short prompts are computed where they are decoded; a long one begins with the same."""
    load = workload([0.0, 1.0], [49, 97], [2, 2], [A[:3], A], block=16)
    spec = pools("vllm", timer=STEADY, local_below_tokens=60, caching=True)
    own = run_cluster(with_tiers(spec, tiers("host"), tiers("host")), load)
    assert own.cached_tokens.tolist() == [0, 0]
    shared = run_cluster(with_tiers(spec, tiers("shared"), tiers("shared")), load)
    assert shared.cached_tokens.tolist() == [0, 48]
    assert shared.hand_overs is not None
    assert shared.hand_overs.tiers is not None
    assert shared.hand_overs.tiers.tokens.tolist() == [48]


def test_a_replica_that_crashes_loses_its_host_memory_and_not_the_shared_storage():
    load = workload([0.0, 5.0, 30.0], [97, 97, 97], [2, 2, 2], [A, B, A], block=16)
    load = replace(load, client=ClientPolicy(client_retries=1))
    spec = pools("vllm", timer=STEADY, prefill_blocks=7, num_blocks=64, caching=True)
    for name, cached in (("host", 0), ("shared", 96)):
        own = with_tiers(spec, prefill=tiers(name))
        result = run_cluster(scaled(own, failures="crash@10:prefill0"), load)
        assert result.completed.all()
        assert result.cached_tokens.tolist() == [0, 0, cached]


# --- laws --------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> tuple[ClusterSpec, Workload]:
    scheduler = draw(st.sampled_from(["vllm", "sglang"]))
    transfer = wire(
        FIRST_TOKENS[scheduler],
        draw(st.sampled_from(["none", "chunk", "layer"])),
        draw(st.sampled_from([3.3e5, 1.3e8])),
        latency_s=0.000731,
    )
    # SGLang's decode engines keep no prefixes, and so have nothing in tiers.
    decode = draw(st.booleans()) and scheduler == "vllm"
    own = {
        "link_bytes_s": draw(st.sampled_from([1.1e5, 1.3e7])),
        "writes_through": draw(st.booleans()),
        "loads_always": draw(st.booleans()),
        "most_loads": draw(st.integers(1, 4)),
    }
    name = draw(st.sampled_from(["host", "shared"]))
    spec = pools(
        scheduler,
        transfer,
        prefill=draw(st.integers(1, 2)),
        decode=draw(st.integers(1, 2)),
        num_blocks=draw(st.sampled_from([34, 60])),
        prefill_blocks=draw(st.sampled_from([26, 60])),
        max_num_seqs=draw(st.integers(1, 8)),
        budget=draw(st.sampled_from([64, 256])),
        local_below_tokens=draw(st.sampled_from([0, 90])),
        async_scheduling=draw(st.booleans()),
        caching=True,
    )
    spec = with_tiers(spec, tiers(name, **own) if decode else None, tiers(name, **own))
    return spec, draw(workloads(longest=300))


def stepping(spec: ClusterSpec) -> ClusterSpec:
    assert spec.prefill is not None
    pool = spec.prefill.pool
    return replace(
        spec,
        limits=replace(spec.limits, max_run=1),
        prefill=replace(spec.prefill, pool=replace(pool, limits=replace(pool.limits, max_run=1))),
    )


@settings(max_examples=80, deadline=None)
@given(cases())
def test_nobody_is_lost_and_leaping_changes_nothing(case: tuple[ClusterSpec, Workload]):
    spec, load = case
    leaped = run_cluster(spec, load)
    assert leaped.completed.all()
    parts = request_latencies_s(leaped)
    names = ("frontend", "router", "queue", "kv_load", "prefill", "transfer")
    total = sum(parts[name] for name in names)
    np.testing.assert_allclose(total, parts["ttft"], atol=1e-9)
    assert all((parts[name] >= -1e-9).all() for name in names)
    if load.max_concurrency is not None:
        return  # Replicas that feed each other meet at one instant, up to rounding.
    stepped = run_cluster(stepping(spec), load)
    np.testing.assert_allclose(leaped.finish_s, stepped.finish_s, rtol=0, atol=1e-9)
    assert leaped.cached_tokens.tolist() == stepped.cached_tokens.tolist()


@settings(max_examples=80, deadline=None)
@given(cases(), st.floats(0.0, 3.0), st.sampled_from(["0", "prefill0", "1", "prefill1"]))
def test_with_crashes_too_every_request_is_answered_or_lost_once(
    case: tuple[ClusterSpec, Workload], crash_s: float, where: str
):
    spec, load = case
    assert spec.prefill is not None
    most = spec.prefill.pool.replicas if where.startswith("prefill") else spec.replicas
    where = where if int(where[-1]) < most else where[:-1] + "0"
    client = ClientPolicy(client_timeout_s=1.3, client_retries=2)
    spec = scaled(spec, failures=f"crash@{round(crash_s, 4)}:{where}", start_s=0.5)
    result = run_cluster(spec, replace(load, client=client))
    assert ((result.refusal >= Refusal.FAILED) ^ result.completed).all()
    parts = request_latencies_s(result)
    done = result.completed
    assert all((parts[name][done] >= -1e-9).all() for name in ("queue", "kv_load", "prefill"))


# --- deployments -------------------------------------------------------------------------------


def test_a_prefill_pool_has_tiers_of_its_own_or_the_others():
    load = build_workload(
        WorkloadSpec(
            random_input_len=200,
            random_output_len=100,
            random_prefix_len=8000,
            num_prefixes=100,
            request_rate=4.0,
            num_prompts=300,
        )
    )
    plain = Deployment(model="meta-llama/Llama-3.1-8B-Instruct", gpu="h100_sxm", prefill_replicas=1)
    none = simulate(plain, load).metrics()
    both = simulate(replace(plain, kv_host_gib=200.0), load)
    assert both.result.tiers is not None
    found = both.metrics()
    assert found["prefill_kv_host_hit_rate"] > 0.1
    assert found["mean_ttft_ms"] < 0.9 * none["mean_ttft_ms"]
    alone = simulate(replace(plain, prefill_kv_host_gib=200.0), load)
    assert alone.result.tiers is None
    assert alone.metrics()["prefill_kv_host_hit_rate"] == found["prefill_kv_host_hit_rate"]
