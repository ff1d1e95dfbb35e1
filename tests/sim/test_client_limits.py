"""What a client has in flight at most, and what waits at the client for that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.metrics import request_latencies_s, summarize
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.client import ClientPolicy
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec
from workloads import workload, workloads

SPEC = ClusterSpec(
    timer=AffineTimer(0.010, 0.0, 0.0, 0.0, 0.0),
    limits=EngineLimits(max_num_seqs=64, max_num_batched_tokens=4096),
    num_blocks=4000,
    max_model_len=100_000,
)


def limited(load: Workload, clients: list[int] | IntArray, limit: int, **client: float) -> Workload:
    policy = ClientPolicy(client_max_in_flight=limit, **client)  # type: ignore[arg-type]
    return replace(load, clients=np.asarray(clients, dtype=np.int64), client=policy)


def test_the_third_request_of_a_client_waits_for_one_of_the_first_two() -> None:
    load = workload([0.0, 0.0, 0.0, 0.0], [20] * 4, [10, 20, 5, 5])
    result = run_cluster(SPEC, limited(load, [0, 0, 0, 1], 2))
    # Steps of 10 ms: the first answer is complete after 10 of them.
    assert result.wanted_s.tolist() == [0.0] * 4
    assert result.sent_s.tolist() == pytest.approx([0.0, 0.0, 0.10, 0.0])
    waits = request_latencies_s(result)
    assert waits["client_wait"].tolist() == pytest.approx([0.0, 0.0, 0.10, 0.0])
    np.testing.assert_allclose(waits["user_ttft"], waits["ttft"] + waits["client_wait"])
    np.testing.assert_allclose(waits["user_e2el"], waits["e2el"] + waits["client_wait"])
    assert summarize(result)["mean_client_wait_ms"] == pytest.approx(25.0)


def test_whoever_gives_up_makes_room() -> None:
    load = workload([0.0, 0.0], [20, 20], [10_000, 1])
    result = run_cluster(SPEC, limited(load, [0, 0], 1, client_cancel_share=1.0))
    assert result.cancelled.tolist() == [True, False]
    assert result.sent_s[1] == pytest.approx(result.refused_s[0])


@settings(max_examples=60, deadline=None)
@given(
    load=workloads(),
    num_clients=st.integers(1, 3),
    limit=st.integers(1, 3),
    timeout_s=st.sampled_from([None, 0.05]),
)
def test_no_client_has_more_in_flight_and_none_waits_for_nothing(
    load: Workload, num_clients: int, limit: int, timeout_s: float | None
) -> None:
    clients = np.arange(len(load)) % num_clients
    load = limited(load, clients, limit)
    load = replace(load, client=replace(load.client, client_timeout_s=timeout_s))
    result = run_cluster(SPEC, load)
    left_s = np.where(result.completed, result.finish_s, result.refused_s)
    for client in range(num_clients):
        own = clients == client
        sent_s, ended_s = result.sent_s[own], left_s[own]
        for at_s, wanted_s in zip(sent_s, result.wanted_s[own], strict=True):
            # Ends and sends of an instant fall together.
            before = int(((sent_s < at_s) & (ended_s > at_s + 1e-9)).sum())
            assert before < limit
            if at_s > wanted_s and load.max_concurrency is None:
                assert np.isclose(ended_s, at_s).any()


def test_sessions_are_clients_unless_requests_are_drawn_to_come_from_some() -> None:
    sessions = build_workload(
        WorkloadSpec(num_prompts=6, num_turns=2, client_max_in_flight=1, request_rate=1.0)
    )
    assert sessions.clients is not None
    assert sessions.clients.tolist() == [0, 0, 1, 1, 2, 2]
    drawn = build_workload(WorkloadSpec(num_prompts=900, num_clients=3, client_max_in_flight=4))
    assert drawn.clients is not None
    assert np.bincount(drawn.clients).min() > 240
    turns = build_workload(
        WorkloadSpec(num_prompts=6, num_turns=2, client_max_in_flight=1, num_clients=2)
    )
    assert turns.clients is not None
    assert turns.clients[::2].tolist() == turns.clients[1::2].tolist()
    with pytest.raises(UserError, match="num_clients"):
        build_workload(WorkloadSpec(client_max_in_flight=1))
