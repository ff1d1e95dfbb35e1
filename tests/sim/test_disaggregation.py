"""Prefill and decode pools on one clock: whose token comes when, and that nobody is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.metrics import request_latencies_s, summarize
from dynosim.sim.workload.columns import Workload
from pools import FIRST_TOKENS, pools, wire
from workloads import workload, workloads

# A step takes 10 ms, whatever is in it, and 1 ms for every token of a prompt.
STEADY = AffineTimer(
    base_s=0.010, per_token_s=0.0, per_pair_s=0.0, per_sequence_s=0.0, per_context_s=0.0
)


# --- by hand ----------------------------------------------------------------------------------


def test_vllm_computes_the_last_token_again_where_the_answer_is_decoded():
    spec = pools("vllm", wire(bytes_s=1e6), timer=STEADY)
    result = run_cluster(spec, workload([0.0], [100], [3]))
    # Prefill until 10 ms, 100 tokens at 1 ms each on the wire until 110 ms, then steps.
    np.testing.assert_allclose(result.token_times_s(0), [0.120, 0.130, 0.140], atol=1e-12)
    parts = request_latencies_s(result)
    assert parts["transfer"][0] == pytest.approx(0.100)
    assert parts["prefill"][0] == pytest.approx(0.020)
    assert parts["ttft"][0] == pytest.approx(0.120)


@pytest.mark.parametrize("scheduler", ["sglang", "trtllm"])
def test_the_others_stream_the_first_token_that_came_along(scheduler: str):
    spec = pools(scheduler, wire("handed_over"), timer=STEADY)
    result = run_cluster(spec, workload([0.0], [100], [3]))
    np.testing.assert_allclose(result.token_times_s(0), [0.110, 0.120, 0.130], atol=1e-12)
    assert request_latencies_s(result)["prefill"][0] == pytest.approx(0.010)


@pytest.mark.parametrize("scheduler", FIRST_TOKENS)
def test_an_answer_of_one_token(scheduler: str):
    spec = pools(scheduler, timer=STEADY)
    result = run_cluster(spec, workload([0.0], [100], [1]))
    assert result.finish_s[0] == pytest.approx(0.120 if scheduler == "vllm" else 0.110)


def test_four_prompts_on_one_wire_take_four_times_as_long():
    # All are prefilled in one step, until 10 ms; the decode replica has room for all.
    result = run_cluster(pools("trtllm", timer=STEADY), workload([0.0] * 4, [100] * 4, [2] * 4))
    assert result.hand_overs is not None
    assert result.hand_overs.transfer_s.tolist() == pytest.approx([0.4] * 4)
    two = run_cluster(
        pools("trtllm", timer=STEADY, prefill=2, decode=2), workload([0.0] * 4, [100] * 4, [2] * 4)
    )
    assert two.hand_overs is not None
    assert two.hand_overs.transfer_s.tolist() == pytest.approx([0.2] * 4)


def test_chunks_leave_while_the_rest_is_computed():
    # Four chunks of 100 tokens end at 10, 20, 30, 40 ms and take 5 ms each on the wire.
    spec = pools("trtllm", wire("handed_over", "chunk", 20e6), budget=112, timer=STEADY)
    result = run_cluster(spec, workload([0.0], [448], [2]))
    assert request_latencies_s(result)["transfer"][0] == pytest.approx(0.0056)
    late = pools("trtllm", wire("handed_over", "none", 20e6), budget=112, timer=STEADY)
    result = run_cluster(late, workload([0.0], [448], [2]))
    assert request_latencies_s(result)["transfer"][0] == pytest.approx(4 * 0.0056)


def test_layers_leave_while_the_next_is_computed():
    # One step of 10 ms; the wire needs 5 ms, so all but the last of four layers is through by then.
    spec = pools("trtllm", wire("handed_over", "layer", 20e6), timer=STEADY)
    result = run_cluster(spec, workload([0.0], [100], [2]))
    assert request_latencies_s(result)["transfer"][0] == pytest.approx(0.005 / 4)


def test_a_prefill_replica_keeps_blocks_until_they_have_been_read():
    # Six blocks hold one prompt of 90 tokens; the second is prefilled when the first has left.
    spec = pools("vllm", timer=STEADY, prefill_blocks=6)
    result = run_cluster(spec, workload([0.0, 0.0], [90, 90], [2, 2]))
    assert result.scheduled_s.tolist() == pytest.approx([0.0, 0.100])


def test_a_decode_replica_takes_blocks_before_anything_is_sent():
    # Its six blocks hold one of them: the second is sent when the first is answered.
    spec = pools("vllm", timer=STEADY, num_blocks=6, prefill_blocks=64)
    result = run_cluster(spec, workload([0.0, 0.0], [90, 90], [2, 2]))
    assert result.hand_overs is not None
    # Sent until 100 ms and answered until 120 ms, then the other.
    assert result.hand_overs.transfer_s.tolist() == pytest.approx([0.090, 0.110 + 0.090])


def test_short_prompts_stay_on_the_decode_replica():
    spec = pools("vllm", timer=STEADY, local_below_tokens=50)
    result = run_cluster(spec, workload([0.0, 0.0], [49, 50], [2, 2]))
    assert result.hand_overs is not None
    assert result.hand_overs.replica.tolist() == [-1, 0]
    assert result.token_times_s(0).tolist() == pytest.approx([0.010, 0.020])


def test_a_prefix_that_the_decode_replica_has_is_not_sent_again():
    units = list(range(6))
    load = workload([0.0, 1.0], [100, 100], [2, 2], [units, units], block=16)
    result = run_cluster(pools("vllm", timer=STEADY, caching=True), load)
    assert result.hand_overs is not None
    # Six units of 16 tokens are there; the four tokens behind them are not.
    assert result.hand_overs.transfer_s.tolist() == pytest.approx([0.100, 0.004])


# --- laws -------------------------------------------------------------------------------------

SPECS = {
    "scheduler": st.sampled_from(sorted(FIRST_TOKENS)),
    "overlap": st.sampled_from(["none", "chunk", "layer"]),
    "num_blocks": st.sampled_from([34, 60, 400]),
    "prefill_blocks": st.sampled_from([26, 60, 400]),
    "max_num_seqs": st.integers(1, 8),
    "budget": st.sampled_from([64, 256, 2048]),
    "caching": st.booleans(),
    "prefill": st.integers(1, 2),
    "decode": st.integers(1, 2),
    "local_below_tokens": st.sampled_from([0, 40]),
    "bytes_s": st.sampled_from([3.3e5, 1.01e6, 1.3e8]),
    "policy": st.booleans(),
    "async_scheduling": st.booleans(),
}


def drawn(draw: st.DrawFn) -> ClusterSpec:
    """Draws two pools, some of them with hardly any room."""
    args = {name: draw(strategy) for name, strategy in SPECS.items()}
    first_token = FIRST_TOKENS[args["scheduler"]]
    overlap, bytes_s = args.pop("overlap"), args.pop("bytes_s")
    args["policy"] = "max_utilization" if args["policy"] and args["scheduler"] == "trtllm" else None
    return pools(transfer=wire(first_token, overlap, bytes_s, latency_s=0.000731), **args)


@st.composite
def specs(draw: st.DrawFn) -> ClusterSpec:
    return drawn(draw)


@settings(max_examples=40, deadline=None)
@given(load=workloads(), spec=specs())
def test_nobody_is_lost_and_leaping_changes_nothing(load: Workload, spec: ClusterSpec):
    """Tokens, requests, prompts and KV blocks are counted by the run itself."""
    assert spec.prefill is not None
    leaping = run_cluster(spec, load)
    pool = spec.prefill.pool
    single = replace(
        spec,
        limits=replace(spec.limits, max_run=1),
        prefill=replace(spec.prefill, pool=replace(pool, limits=replace(pool.limits, max_run=1))),
    )
    if load.max_concurrency is not None:
        return  # Replicas that feed each other meet at one instant, up to rounding.
    stepping = run_cluster(single, load)
    for i in np.flatnonzero(leaping.completed):
        np.testing.assert_allclose(
            leaping.token_times_s(int(i)), stepping.token_times_s(int(i)), rtol=0, atol=1e-9
        )
    found, expected = summarize(leaping), summarize(stepping)
    # Blocks in use are noted when a run ends: between, those of a hand-over may come and go.
    assert not found["kv_usage_peak"] > expected["kv_usage_peak"] + 1e-9
    for name, value in expected.items():
        if not name.startswith("kv_usage"):
            assert found[name] == pytest.approx(value, rel=1e-6, abs=1e-6, nan_ok=True)


@settings(max_examples=40, deadline=None)
@given(load=workloads(), spec=specs())
def test_what_was_sent_is_what_was_missing(load: Workload, spec: ClusterSpec):
    result = run_cluster(spec, load)
    assert result.hand_overs is not None
    assert spec.prefill is not None
    links = result.hand_overs.links
    carried = [sum(u.carried_bytes for u in links if u.name.startswith(p)) for p in ("p", "d")]
    assert carried[0] == pytest.approx(carried[1])
    sent = result.hand_overs.replica >= 0
    whole = spec.prefill.transfer.size.per_token * int(load.input_tokens[sent].sum())
    assert carried[0] <= whole + 1e-3
    if not spec.limits.enable_prefix_caching:
        assert carried[0] == pytest.approx(whole)


@settings(max_examples=20, deadline=None)
@given(load=workloads())
def test_parts_of_the_first_token_time_add_up(load: Workload):
    parts = request_latencies_s(run_cluster(pools("sglang"), load))
    total = parts["frontend"] + parts["queue"] + parts["prefill"] + parts["transfer"]
    np.testing.assert_allclose(total, parts["ttft"], atol=1e-12)
