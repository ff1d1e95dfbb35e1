"""Front-ends: who waits for an API server's processor, and for how long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.frontend import Frontend, Intake
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.engine.step_log import StepLog, Steps
from dynosim.sim.metrics import summarize
from dynosim.sim.results import RunResult
from dynosim.sim.workload.columns import Workload
from frontends import FRONTENDS
from workloads import workload, workloads

TEN_MS = AffineTimer(0.010, 0.0, 0.0, 0.0, 0.0)


def run(frontend: Frontend, load: Workload, **limits: int) -> RunResult:
    engine = EngineLimits(**({"max_num_seqs": 8, "max_num_batched_tokens": 1000} | limits))
    spec = ClusterSpec(
        timer=TEN_MS, limits=engine, num_blocks=400, max_model_len=1000, frontend=frontend
    )
    return run_cluster(spec, load)


def test_requests_are_taken_in_one_after_the_other() -> None:
    frontend = Frontend(request_s=0.002, input_token_s=0.0001)
    # 2 ms + 2 ms for the first, then 2 ms + 1 ms for the second; the third finds nobody before it.
    result = run(frontend, workload([0.0, 0.001, 0.5], [20, 10, 20], [1, 1, 1]))
    np.testing.assert_allclose(result.arrived_s, [0.004, 0.007, 0.504])
    assert summarize(result)["p99_frontend_ms"] == pytest.approx(6.0, abs=0.1)


def test_twice_the_servers_take_half_the_time() -> None:
    frontend = Frontend(request_s=0.004, output_s=0.004)
    load = workload([0.0], [20], [3])
    one, two = run(frontend, load), run(replace(frontend, servers=2), load)
    np.testing.assert_allclose(one.token_times_s(0), [0.018, 0.028, 0.038])
    np.testing.assert_allclose(two.token_times_s(0), [0.014, 0.024, 0.034])


def test_a_writer_that_keeps_up_delays_every_token_alike() -> None:
    result = run(Frontend(output_s=0.002), workload([0.0, 0.0], [20, 20], [4, 4]))
    # Two answers a step: 4 ms after each of the engine's 10 ms.
    np.testing.assert_allclose(result.token_times_s(0), [0.014, 0.024, 0.034, 0.044])
    assert summarize(result)["mean_tpot_ms"] == pytest.approx(10.0)


def test_a_writer_slower_than_its_engine_sets_the_pace() -> None:
    load = workload([0.0] * 5, [20] * 5, [11] * 5)
    metrics = summarize(run(Frontend(output_s=0.003), load))
    # Five answers a step take 15 ms to write, where the engine needs 10.
    assert metrics["mean_tpot_ms"] == pytest.approx(15.0)
    assert metrics["p99_itl_ms"] == pytest.approx(15.0)
    assert metrics["mean_ttft_ms"] == pytest.approx(25.0)


def test_a_queue_of_answers_delays_first_tokens_of_others() -> None:
    # The writer is 5 ms a step behind; the step after the tenth, which
    # the sixth request is in, finds 50 ms left to write, and then six answers of its own.
    load = workload([0.0] * 5 + [0.095], [20] * 6, [20] * 6)
    result = run(Frontend(output_s=0.003), load)
    slow, quick = result.first_token_s[5], run(Frontend(), load).first_token_s[5]
    assert slow - quick == pytest.approx(0.050 + 0.018)
    assert summarize(result)["p99_frontend_ms"] == pytest.approx(68.0, rel=0.05)


def test_in_a_closed_loop_the_next_request_waits_for_the_last_written_token() -> None:
    load = replace(workload([0.0, 0.0], [20, 20], [2, 2]), max_concurrency=1)
    result = run(Frontend(output_s=0.004), load)
    assert result.finish_s[0] == pytest.approx(0.024)
    assert result.sent_s[1] == pytest.approx(0.024)
    assert result.first_token_s[1] == pytest.approx(0.038)


@settings(max_examples=80, deadline=None)
@given(load=workloads(), frontend=st.sampled_from(FRONTENDS[2:]))
def test_parts_of_the_time_to_the_first_token_add_up(load: Workload, frontend: Frontend) -> None:
    m = summarize(run(frontend, load, max_num_seqs=3, max_num_batched_tokens=64))
    parts = m["mean_frontend_ms"] + m["mean_queue_ms"] + m["mean_prefill_ms"]
    assert parts == pytest.approx(m["mean_ttft_ms"], nan_ok=True)


def step_by_step(steps: Steps, output_s: float) -> FloatArray:
    """When each step is written, one after the other."""
    written, free_s = [], -np.inf
    ordinals = range(len(steps))
    for end_s, outputs in zip(
        steps.ends_s(np.array(ordinals)),
        np.repeat(steps.outputs, steps.counts.astype(int)),
        strict=True,
    ):
        free_s = max(free_s, end_s) + outputs * output_s
        written.append(free_s)
    return np.array(written)


@st.composite
def logs(draw: st.DrawFn) -> Steps:
    log, now_s = StepLog(), 0.0
    for _ in range(draw(st.integers(1, 8))):
        now_s += draw(st.sampled_from([0.0, 0.0, 0.1]))
        dt_s, growth_s = draw(st.floats(0.001, 0.02)), draw(st.sampled_from([0.0, 1e-6, 1e-3]))
        count = draw(st.integers(1, 40))
        log.run(now_s, dt_s, growth_s, count, draw(st.integers(0, 6)), 0, 0, 0, 0)
        now_s += count * dt_s + growth_s * count * (count - 1) / 2
    return log.steps()


@settings(max_examples=300, deadline=None)
@given(steps=logs(), output_s=st.sampled_from([1e-4, 0.002, 0.005, 0.02]))
def test_runs_are_written_as_their_steps_are(steps: Steps, output_s: float) -> None:
    delivered = Frontend(output_s=output_s).delivered(steps)
    assert len(delivered) == len(steps)
    np.testing.assert_allclose(
        delivered.ends_s(np.arange(len(steps))), step_by_step(steps, output_s), rtol=0, atol=1e-9
    )
    # Behind the first, every step lasts from the one before it.
    np.testing.assert_allclose(
        delivered.start_s[1:], delivered.ends_s(np.cumsum(delivered.counts)[:-1].astype(int) - 1)
    )


@given(gaps_s=st.lists(st.floats(0.0, 0.01), min_size=1, max_size=20), replicas=st.integers(1, 3))
def test_taken_in_at_once_or_one_by_one(gaps_s: list[float], replicas: int) -> None:
    frontend = Frontend(request_s=0.003, input_token_s=1e-5, servers=2)
    sent_s = np.cumsum(gaps_s)
    tokens = np.arange(len(gaps_s)) * 10
    intake = Intake(frontend, replicas)
    one_by_one = [intake.enter(s, n) for s, n in zip(sent_s.tolist(), tokens.tolist(), strict=True)]
    np.testing.assert_allclose(frontend.entered_s(sent_s, tokens, replicas), one_by_one, atol=1e-12)
