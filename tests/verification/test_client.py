"""The client measures what a server did, to the ms, and sends what was planned when it was."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.turns import Turns
from dynosim.verification.load.client import measure_load, observe_load
from dynosim.verification.load.endpoint import Endpoint
from dynosim.verification.load.limits import Limits
from dynosim.verification.load.measured import measured_run
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun
from loads import plan
from servers import Engine, served, served_here

# A busy machine may be late: what is tested here does not depend on it.
PATIENT = Limits(max_lag_share=float("inf"), request_timeout_s=20.0, run_timeout_s=60.0)
TOLERANCE_MS = 2.0
ATTEMPTS = 6
Latencies = tuple[float, float]
"""TTFT and TPOT."""


def measure(engine: Engine, load: LoadPlan, limits: Limits = PATIENT) -> ObservedRun:
    with served(engine) as url:
        return measure_load(Endpoint.at(url), "m", load, limits)


CLOSED = plan(17, tokens=6, warmup=2, cap=1)
SPACED = replace(CLOSED, max_concurrency=None, send_s=(*[0.0] * 2, *[0.03 * i for i in range(17)]))


def told_and_measured_ms(load: LoadPlan) -> tuple[Latencies, Latencies]:
    """Returns median TTFT and TPOT as the server wrote tokens, and as the client measured them."""
    engine = Engine(ttft_s=0.04, tpot_s=0.01)

    async def in_one_loop() -> ObservedRun:
        async with served_here(engine) as url:
            return await observe_load(Endpoint.at(url), "m", load, PATIENT)

    run = asyncio.run(in_one_loop())
    assert all(request.error is None for request in run.requests)
    assert [request.index for request in run.requests] == list(range(2, 19))
    written = engine.written[2:]
    ttft_s = median(times[0] - came_s for came_s, times in written)
    tpot_s = median((times[-1] - times[0]) / 5 for _, times in written)
    found = measured_run(run, load).measured
    return (ttft_s * 1e3, tpot_s * 1e3), (found["median_ttft_ms"], found["median_tpot_ms"])


@pytest.mark.parametrize("load", [CLOSED, SPACED], ids=["closed loop", "open loop"])
def test_times_are_those_of_the_server(load: LoadPlan) -> None:
    # A machine that is busy at the moment takes the processor away in between: it is asked again.
    for _ in range(ATTEMPTS):
        told, measured = told_and_measured_ms(load)
        if measured == pytest.approx(told, abs=TOLERANCE_MS):
            break
    assert measured == pytest.approx(told, abs=TOLERANCE_MS)
    assert told[0] >= 40.0


def test_requests_are_what_was_planned() -> None:
    engine = Engine(ttft_s=0.001, tpot_s=0.001)
    load = replace(plan(2, tokens=5), priority=(3, 1))
    measure(engine, load)
    first, second = sorted(engine.asked, key=lambda asked: asked["prompt"])
    assert (first["prompt"], second["prompt"]) == ([7, 8, 9, 0], [7, 8, 9, 1])
    assert (first["priority"], second["priority"]) == (3, 1)
    wanted = {"model": "m", "max_tokens": 5, "ignore_eos": True, "temperature": 0, "stream": True}
    assert {name: first[name] for name in wanted} == wanted
    assert first["stream_options"]["include_usage"] is True


def test_an_open_loop_sends_at_its_times() -> None:
    send_s = (0.0, 0.0, 0.05, 0.05, 0.12, 0.3)
    load = replace(plan(5, warmup=1, cap=None), send_s=send_s)
    run = measure(Engine(ttft_s=0.2), load)
    assert [r.planned_s for r in run.requests] == list(send_s[1:])
    assert all(r.sent_s >= r.planned_s for r in run.requests)
    in_time = [(r.sent_s, r.index) for r in run.requests if r.planned_s > 0.1]
    assert in_time == sorted(in_time)


def test_a_closed_loop_keeps_its_slots_busy_and_its_connections_open() -> None:
    engine = Engine(ttft_s=0.01, tpot_s=0.005)
    run = measure(engine, plan(12, tokens=4, cap=3))
    events = sorted(
        [(r.sent_s, 1) for r in run.requests] + [(r.token_s[-1], -1) for r in run.requests]
    )
    in_flight = 0
    for _, change in events:
        in_flight += change
        assert in_flight <= 3
    for request in run.requests[3:]:
        over_s = [other.token_s[-1] for other in run.requests[: request.index]]
        assert request.planned_s in over_s
    # Three, and one that read the metrics.
    assert engine.connections <= 5


def test_turns_wait_for_their_answers_and_think() -> None:
    turns = Turns.chained(np.array([-1, 0, -1, 1]), np.array([0.0, 0.1, 0.0, 0.05]))
    load = replace(plan(4, cap=None), turns=turns)
    run = measure(Engine(ttft_s=0.02), load)
    one, two, other, three = run.requests
    assert two.planned_s == pytest.approx(one.token_s[-1] + 0.1)
    assert three.planned_s == pytest.approx(two.token_s[-1] + 0.05)
    assert other.planned_s == 0.0


@pytest.mark.parametrize("counts_along", [True, False])
def test_tokens_that_come_together_have_one_time(counts_along: bool) -> None:
    load = plan(2, tokens=7)
    run = measure(Engine(step=3, counts_along=counts_along), load)
    for request in run.requests:
        assert request.output_tokens == 7
        assert len(set(request.token_s)) == 3
    assert bool(run.notes) is not counts_along
    found = measured_run(run, load).measured
    # Seven tokens have six gaps, of which four are none.
    assert found["mean_itl_ms"] == pytest.approx(found["mean_tpot_ms"] * 6 / 2)


def test_a_notebook_has_a_loop_already() -> None:
    async def cell() -> ObservedRun:
        return measure(Engine(ttft_s=0.001, tpot_s=0.001), plan(2))

    assert len(asyncio.run(cell()).requests) == 2


def test_a_load_generator_that_is_late_is_refused() -> None:
    with pytest.raises(UserError, match=r"late \(p99\).*of the median TTFT"):
        measure(Engine(), plan(4), replace(PATIENT, max_lag_share=0.0))


def test_a_plan_longer_than_the_run_may_last() -> None:
    load = replace(plan(2, cap=None), send_s=(0.0, 100.0))
    with pytest.raises(UserError, match="sent after 100 s, the run may last 60 s"):
        measure(Engine(), load)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(UserError, match=r"needs aiohttp\n.*pip install 'dynosim\[verify\]'"):
        measure_load(Endpoint(base_url="http://h"), "m", plan(1))


def test_an_interrupt_ends_the_run_at_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from dynosim.verification.load.client import measure_load\n"
        "from dynosim.verification.load.endpoint import Endpoint\n"
        "from dynosim.verification.load_plan import LoadPlan\n"
        "plan = LoadPlan(prompts=((1, 2),), output_tokens=(3,), send_s=None, max_concurrency=1)\n"
        "print('ready', flush=True)\n"
        "measure_load(Endpoint.at(sys.argv[1]), 'm', plan)\n"
    )
    engine = Engine(ttft_s=60.0)
    with served(engine) as url:
        words = [sys.executable, str(script), url]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while not engine.asked and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
    assert process.returncode != 0
    assert errors.decode().strip().endswith("KeyboardInterrupt")
