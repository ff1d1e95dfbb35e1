"""Clients: what the network takes, and requests that wait for the answers of others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.metrics import request_latencies_s, summarize
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.client import ClientPolicy
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.network import CHUNK_BYTES, NetworkOptions, network_of
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.sim.workload.traces import read_trace
from dynosim.sim.workload.turns import Turns
from workloads import workload, workloads

SPEC = ClusterSpec(
    timer=AffineTimer(),
    limits=EngineLimits(max_num_seqs=8, max_num_batched_tokens=512),
    num_blocks=400,
    max_model_len=100_000,
)


def network(**fields: Any) -> Any:
    return network_of(NetworkOptions(**fields))


# --- network -----------------------------------------------------------------------------------


def test_round_trips_by_hand() -> None:
    # Half a round trip there and back, one for TCP, one for TLS.
    assert network() is None
    assert float(network(network_rtt_ms=40).up_s(1000)) == pytest.approx(0.020)
    fresh = network(network_rtt_ms=40, network_connection="per_request")
    assert float(fresh.up_s(1000)) == pytest.approx(0.100)
    assert fresh.down_s == pytest.approx(0.020)
    bare = network(network_rtt_ms=40, network_connection="per_request", network_tls=False)
    assert float(bare.up_s(1000)) == pytest.approx(0.060)
    # 4,500 bytes at 1 Mbit/s.
    slow = network(network_mbit_s=1.0)
    assert float(slow.up_s(1000)) == pytest.approx(0.036)
    assert slow.down_s == pytest.approx(CHUNK_BYTES * 8e-6)


def test_clients_see_their_own_latency_and_the_server_its_own() -> None:
    load = workload([0.0, 0.5, 1.0], [100, 200, 50], [5, 7, 1])
    far = replace(load, network=network(network_rtt_ms=100, network_connection="per_request"))
    near, seen = run_cluster(SPEC, load), run_cluster(SPEC, far)
    # 0.25 s of set-up and way there, 0.05 s back.
    np.testing.assert_allclose(seen.first_token_s, near.first_token_s + 0.30)
    np.testing.assert_allclose(seen.token_times_s(1), near.token_times_s(1) + 0.30)
    metrics, plain = summarize(seen), summarize(near)
    assert metrics["mean_ttft_ms"] == pytest.approx(plain["mean_ttft_ms"] + 300)
    assert metrics["mean_server_ttft_ms"] == pytest.approx(plain["mean_ttft_ms"])
    assert metrics["mean_server_e2el_ms"] == pytest.approx(plain["mean_e2el_ms"])
    assert metrics["mean_network_ms"] == pytest.approx(300)
    assert metrics["mean_tpot_ms"] == pytest.approx(plain["mean_tpot_ms"])


def test_a_long_prompt_over_a_thin_line_is_overtaken() -> None:
    load = workload([0.0, 0.01], [2000, 10], [1, 1])
    result = run_cluster(SPEC, replace(load, network=network(network_mbit_s=1.0)))
    assert result.scheduled_s[1] < result.scheduled_s[0]


@settings(max_examples=60, deadline=None)
@given(
    load=workloads(),
    rtt_ms=st.sampled_from([0.0, 35.0]),
    mbit_s=st.sampled_from([None, 5.0]),
    frontend=st.sampled_from([Frontend(), Frontend(request_s=0.002, output_s=0.0003)]),
)
def test_the_parts_of_ttft_sum_to_it(
    load: Workload, rtt_ms: float, mbit_s: float | None, frontend: Frontend
) -> None:
    far = replace(load, network=network(network_rtt_ms=rtt_ms, network_mbit_s=mbit_s))
    result = run_cluster(replace(SPEC, frontend=frontend), far)
    parts = request_latencies_s(result)
    names = ["frontend", "router", "queue", "prefill"]
    whole = parts["server_ttft"] if far.network is not None else parts["ttft"]
    np.testing.assert_allclose(sum(parts[name] for name in names), whole, atol=1e-12)
    assert (parts["prefill"] > 0.0).all()
    if far.network is not None:
        np.testing.assert_allclose(parts["network"] + whole, parts["ttft"], atol=1e-12)


def test_in_a_closed_loop_the_next_request_waits_for_the_way_back() -> None:
    load = workload([0.0, 0.0], [100, 100], [1, 1], max_concurrency=1)
    far = replace(load, network=network(network_rtt_ms=200))
    result = run_cluster(SPEC, far)
    step_s = AffineTimer().step_s(100, 1, AffineTimer().prefill_attention_s(100, 0), 0, 0)
    assert result.sent_s.tolist() == pytest.approx([0.0, 0.2 + step_s])
    assert result.finish_s[1] == pytest.approx(0.4 + 2 * step_s)


# --- turns -------------------------------------------------------------------------------------


def chain(previous: list[int], think_s: list[float]) -> Turns:
    return Turns.chained(np.array(previous), np.array(think_s))


def test_a_turn_comes_when_its_client_has_thought() -> None:
    load = workload([0.0, 0.0, 0.0], [100, 100, 100], [1, 1, 1])
    result = run_cluster(SPEC, replace(load, turns=chain([-1, 0, 1], [0.0, 2.0, 0.5])))
    step_s = result.finish_s[0]
    assert result.sent_s.tolist() == pytest.approx([0.0, 2.0 + step_s, 2.5 + 2 * step_s])


def test_an_agent_joins_what_it_spawned() -> None:
    # 0 spawns 1 and 2; 3 needs both, and a second of its tool's.
    turns = Turns(
        before=np.array([0, 0, 1, 2]),
        offsets=np.array([0, 0, 1, 2, 4]),
        think_s=np.array([0.0, 0.0, 0.0, 1.0]),
    )
    load = workload([0.0] * 4, [10] * 4, [1, 5, 50, 1])
    result = run_cluster(SPEC, replace(load, turns=turns))
    assert result.sent_s[1] == result.sent_s[2] == result.finish_s[0]
    assert result.sent_s[3] == pytest.approx(result.finish_s[1:3].max() + 1.0)


def test_nobody_waits_for_a_request_that_was_refused() -> None:
    load = workload([0.0, 0.0], [200_000, 100], [1, 1])
    result = run_cluster(SPEC, replace(load, turns=chain([-1, 0], [0.0, 3.0])))
    assert result.completed.tolist() == [False, True]
    assert result.sent_s[1] == 0.0


@pytest.mark.parametrize(
    ("turns", "wrong"),
    [
        (chain([-1, 1], [0.0, 0.0]), "does not come before"),
        (chain([-1, 0], [0.0, -1.0]), "think_s"),
        (Turns(before=np.array([0]), offsets=np.array([0, 0]), think_s=np.zeros(2)), "offsets"),
    ],
)
def test_turns_that_cannot_be_are_refused(turns: Turns, wrong: str) -> None:
    load = workload([0.0, 0.0], [10, 10], [1, 1])
    with pytest.raises(UserError, match=wrong):
        replace(load, turns=turns).check()


@settings(max_examples=40, deadline=None)
@given(
    load=workloads(),
    num_turns=st.integers(2, 4),
    cap=st.sampled_from([None, 2]),
    max_run=st.sampled_from([1, 1 << 40]),
)
def test_every_turn_is_served_once_and_after_the_one_before_it(
    load: Workload, num_turns: int, cap: int | None, max_run: int
) -> None:
    number = np.arange(len(load))
    previous = np.where(number % num_turns > 0, number - 1, -1)
    turns = Turns.chained(previous, np.full(len(load), 0.01))
    limits = replace(SPEC.limits, max_run=max_run)
    result = run_cluster(
        replace(SPEC, limits=limits), replace(load, turns=turns, max_concurrency=cap)
    )
    assert result.completed.all()
    later = np.flatnonzero(previous >= 0)
    gap_s = result.sent_s[later] - result.finish_s[previous[later]]
    assert (gap_s >= 0.01 - 1e-9).all()


def test_synthetic_sessions_say_again_all_that_was_said() -> None:
    load = build_workload(
        WorkloadSpec(
            random_input_len=100,
            random_output_len=20,
            random_prefix_len=64,
            num_prompts=7,
            num_turns=3,
            think_time_s=5.0,
            request_rate=1.0,
        )
    )
    assert load.session is not None
    assert load.session.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert load.input_tokens.tolist() == [164, 284, 404, 164, 284, 404, 164]
    rows = [
        load.prefix_ids[a:b].tolist()
        for a, b in zip(load.prefix_offsets[:-1], load.prefix_offsets[1:], strict=True)
    ]
    assert [len(row) for row in rows] == [n // 16 for n in load.input_tokens]
    assert rows[1][: len(rows[0])] == rows[0]
    assert rows[3][:4] == rows[0][:4]
    assert rows[3][4] != rows[0][4]
    spec = replace(SPEC, num_blocks=4000)
    result = run_cluster(spec, load)
    # A turn finds all full blocks of the one before it.
    assert result.cached_tokens[1] == 160
    assert result.sent_s[1] == pytest.approx(result.finish_s[0] + 5.0)


# --- traces ------------------------------------------------------------------------------------


def trace(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "trace.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


FIRST = {"session_id": "a", "timestamp": 1000, "input_length": 1030, "output_length": 10}


def test_delays_of_a_mooncake_trace_are_thinking_times(tmp_path: Path) -> None:
    file = trace(
        tmp_path,
        FIRST | {"hash_ids": [1, 2, 3]},
        {"timestamp": 1500, "input_length": 5, "output_length": 5, "hash_ids": [9]},
        FIRST | {"hash_ids": [1, 2, 4], "delay": 250},
    )
    load = read_trace(file)
    assert load.turns is not None
    # A turn has the arrival of the one before it, and so its place in the order.
    assert load.turns.before.tolist() == [0]
    assert load.turns.think_s.tolist() == [0.0, 0.25, 0.0]
    assert load.arrival_s.tolist() == [0.0, 0.0, 0.5]


def test_turns_that_have_only_what_is_new_are_made_whole(tmp_path: Path) -> None:
    new = {"session_id": "a", "input_length": 500, "output_length": 30, "delay": 100}
    file = trace(
        tmp_path,
        FIRST | {"hash_ids": [1, 2, 3]},
        new | {"hash_ids": [7]},
        new | {"hash_ids": [8]},
        FIRST | {"session_id": "b", "hash_ids": [1, 2, 5]},
    )
    load = read_trace(file, "mooncake_delta")
    assert sorted(load.input_tokens.tolist()) == [1030, 1030, 1540, 2070]
    order = np.argsort(load.input_tokens, kind="stable")
    rows = [
        load.prefix_ids[a:b].tolist()
        for a, b in zip(load.prefix_offsets[:-1], load.prefix_offsets[1:], strict=True)
    ]
    assert [rows[i][:2] for i in order] == [[1, 2]] * 4
    assert rows[order[3]][:3] == rows[order[2]]


def test_the_synthetic_agents_of_aiperf_are_read(shared_data: Path) -> None:
    file = shared_data / "traces" / "agentic_synth_aiperf" / "dataset.jsonl"
    load = read_trace(file, "mooncake_delta")
    assert load.turns is not None
    assert int(load.turns.is_first.sum()) == 150
    assert len(load) == 3092
    share = load.describe()["ideal_prefix_hit_share_tokens"]
    assert isinstance(share, float)
    assert share > 0.9


def test_sessions_go_on_when_their_clients_give_up() -> None:
    # The first turn takes longer than its client waits; the second one comes all the same.
    load = workload([0.0, 0.0], [5000, 10], [1, 1])
    impatient = replace(
        load,
        turns=chain([-1, 0], [0.0, 1.0]),
        client=ClientPolicy(client_timeout_s=0.05),
        network=network(network_rtt_ms=20),
    )
    result = run_cluster(SPEC, impatient)
    assert result.completed.tolist() == [False, True]
    assert result.sent_s[1] == pytest.approx(1.0 + 0.05, abs=0.05)
