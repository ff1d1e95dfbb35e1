"""What was observed, as statistics, on disk and as a case to fit to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dynosim.accuracy.result_file import case_of, read_results
from dynosim.accuracy.results.base import MeasuredRun
from dynosim.hardware_models.errors import UserError
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.columns import Workload
from dynosim.verification.load.measured import measured_run, read_observed, write_observed
from dynosim.verification.load.same_load import check_same_load
from dynosim.verification.observed import ObservedRequest, ObservedRun
from loads import plan, workload

# Sent at 0, first token after 0.1 s, then 0.02 s apart; two tokens in one chunk at the end.
FIRST = ObservedRequest(
    index=0, planned_s=0.0, sent_s=0.0, token_s=(0.1, 0.12, 0.14, 0.14), input_tokens=10
)
SECOND = ObservedRequest(
    index=1, planned_s=0.5, sent_s=0.5, token_s=(0.8, 0.9, 1.0), input_tokens=30
)
LOST = ObservedRequest(
    index=2, planned_s=0.6, sent_s=0.6, token_s=(0.7,), input_tokens=99, error="hung up"
)
RUN = ObservedRun(
    requests=(FIRST, SECOND, LOST),
    duration_s=1.0,
    clock="wall",
    notes=("the prefix cache was warm",),
    facts={"version": "0.32", "kv_cache_tokens": 4096},
)
OPEN = plan(3, cap=None)


def test_statistics_follow_the_definitions_of_the_simulator() -> None:
    run = measured_run(RUN, OPEN)
    assert (run.num_prompts, run.failed) == (2, 1)
    assert (run.input_tokens, run.output_tokens) == (20.0, 3.5)
    found = run.measured
    assert found["mean_ttft_ms"] == pytest.approx((100 + 300) / 2)
    assert found["p90_ttft_ms"] == pytest.approx(100 + 0.9 * 200)
    # (E2EL - TTFT) / (tokens - 1): 40 / 3 and 200 / 2.
    assert found["median_tpot_ms"] == pytest.approx((40 / 3 + 100) / 2)
    # Gaps between chunks: 20, 20, 100, 100.
    assert found["mean_itl_ms"] == pytest.approx(60)
    assert found["mean_e2el_ms"] == pytest.approx((140 + 500) / 2)
    assert found["request_throughput"] == pytest.approx(2.0)
    assert found["output_throughput"] == pytest.approx(7.0)


def test_a_file_reads_back_as_it_was_observed(tmp_path: Path) -> None:
    path = tmp_path / "observed.json"
    write_observed(path, RUN, OPEN, model="m")
    assert read_observed(path) == replace(
        RUN, requests=tuple(replace(r, token_s=list(r.token_s)) for r in RUN.requests)
    )
    (run,) = read_results(path)
    direct = measured_run(RUN, OPEN, model="m", where=str(path))
    assert run == direct
    first = path.read_bytes()
    write_observed(path, read_observed(path), OPEN, model="m")
    assert path.read_bytes() == first
    assert not list(tmp_path.glob("*.part"))


def test_a_case_has_the_lengths_and_the_arrivals_that_were_observed(tmp_path: Path) -> None:
    write_observed(tmp_path / "o.json", RUN, OPEN)
    (run,) = read_results(tmp_path / "o.json")
    load = case_of(run, Deployment(model="Qwen/Qwen3-8B", gpu="h100_sxm")).workload
    assert isinstance(load, Workload)
    assert load.arrival_s.tolist() == [0.0, 0.5]
    assert load.input_tokens.tolist() == [10, 30]
    assert load.output_tokens.tolist() == [4, 3]


def test_a_closed_loop_keeps_its_slots_and_has_no_rate() -> None:
    run = measured_run(RUN, plan(3, cap=2))
    assert (run.max_concurrency, run.request_rate, run.arrival_s) == (2, None, ())
    assert measured_run(RUN, OPEN).request_rate == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"dynosim_observed": 9}, "format 9"),
        ({"requests": []}, "no request was answered"),
        ({"requests": [{"error": None}]}, r"requests\[0\].*token_s"),
        (
            {"requests": [{"error": None, "sent_s": 2, "input_tokens": 1, "token_s": [1.0]}]},
            "run backwards",
        ),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    path = tmp_path / "o.json"
    write_observed(path, RUN, OPEN)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=problem):
        read_results(path)


def measured(**changes: object) -> MeasuredRun:
    run = MeasuredRun(
        tool="t",
        where="result.json",
        num_prompts=3,
        input_tokens=20.0,
        output_tokens=3.0,
        request_rate=2.0,
        measured={},
    )
    return replace(run, **changes)  # type: ignore[arg-type]


PLANNED = workload([(), (), ()], own=[10, 20, 30], arrival_s=[0.0, 0.5, 1.0])


def test_the_load_that_was_planned_is_the_same() -> None:
    check_same_load(PLANNED, measured())
    check_same_load(PLANNED, measured(input_tokens=20.3, request_rate=1.97))
    closed = replace(PLANNED, arrival_s=np.zeros(3), max_concurrency=4)
    check_same_load(closed, measured(request_rate=None, max_concurrency=4))
    check_same_load(replace(PLANNED, arrival_s=np.zeros(3)), measured(request_rate=None))
    # Arrivals drawn at 2.5 requests/s happened to come at 2.
    check_same_load(PLANNED, measured(request_rate=2.5), request_rate=2.5)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"input_tokens": 20.6}, r"ISL\) of 20.6 tokens, planned: 20 \(\+3.0%\)"),
        ({"output_tokens": 2.9}, r"OSL\) of 2.9 tokens"),
        ({"request_rate": 2.1}, r"2.1 requests/s, planned: 2 \(\+5.0%\)"),
        ({"request_rate": None}, "all requests at once, planned: 2 requests/s"),
        ({"max_concurrency": 8}, "8 requests in flight, planned: no limit"),
        ({"input_tokens": 9.0, "output_tokens": 9.0}, r"(?s)ISL.*OSL.*within 2% of the plan"),
    ],
)
def test_another_load_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        check_same_load(PLANNED, measured(**changes))
    assert "result.json" in str(caught.value)


def test_a_plan_is_compared_without_its_warm_up() -> None:
    run = measured(input_tokens=4.0, output_tokens=4.0, request_rate=None, max_concurrency=2)
    check_same_load(plan(5, warmup=3), run)
