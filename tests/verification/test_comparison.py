"""Predicted against measured: errors, intervals, and figures that follow from others."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.verification.choice import Pick
from dynosim.verification.comparison import Row, compare, intervals_of, widths
from dynosim.verification.engine_facts import compare_facts
from dynosim.verification.measured import Measured, with_derived

PREDICTED = {
    "mean_ttft_ms": 100.0,
    "median_ttft_ms": 80.0,
    "p99_ttft_ms": 400.0,
    "mean_tpot_ms": 10.0,
    "median_tpot_ms": 8.0,
    "mean_e2el_ms": 1000.0,
    "request_throughput": 4.0,
    "output_throughput": 400.0,
    "output_tok_s_per_gpu": 200.0,
    "output_tok_s_per_user": 125.0,
    "num_gpus": 2.0,
    "usd_per_hour": 10.0,
}
TRIAL = Trial(
    number=1,
    deployment=Deployment(model="Qwen/Qwen3-8B", gpu="h100", tensor_parallel_size=2),
    metrics=PREDICTED,
    timing="measured",
)


def test_an_error_is_predicted_over_measured() -> None:
    seen = {**PREDICTED, "mean_ttft_ms": 125.0, "p99_ttft_ms": 320.0}
    rows = compare(
        Measured(pick=Pick(trial=TRIAL, reason=""), repeats=(seen,)),
        ["output_tok_s_per_gpu", "output_tok_s_per_user"],
        is_open=False,
    )
    by_name = {row.metric: row for row in rows}
    assert next(iter(by_name)) == "output_tok_s_per_gpu"
    assert by_name["mean_ttft_ms"].error == pytest.approx(-0.2)
    assert by_name["p99_ttft_ms"].error == pytest.approx(0.25)
    assert by_name["p99_ttft_ms"].interval is None
    assert by_name["p99_ttft_ms"].is_inside is None
    assert by_name["median_tpot_ms"].error == 0.0


def test_inside_and_outside() -> None:
    row = Row(metric="mean_ttft_ms", predicted=1.0, measured=2.0, spread=0.0, interval=(0.5, 2.0))
    assert row.is_inside
    assert not replace(row, measured=2.1).is_inside


def test_medians_and_rates_go_with_the_means_they_belong_to() -> None:
    found = intervals_of(TRIAL, is_open=False)
    low, high = found["mean_tpot_ms"]
    assert found["median_tpot_ms"] == pytest.approx((low * 0.8, high * 0.8))
    assert found["output_tok_s_per_user"] == pytest.approx((1e3 / (high * 0.8), 1e3 / (low * 0.8)))
    rate = found["request_throughput"]
    assert found["output_tok_s_per_gpu"] == pytest.approx((rate[0] * 50, rate[1] * 50))
    assert "p99_ttft_ms" not in found


def test_in_an_open_loop_the_rate_is_the_load_s() -> None:
    found = intervals_of(TRIAL, is_open=True)
    assert "request_throughput" not in found
    assert "output_tok_s_per_gpu" not in found


def test_the_width_is_that_of_the_widest_objective() -> None:
    intervals = intervals_of(TRIAL, is_open=False)
    low, high = intervals["mean_ttft_ms"]
    assert widths([TRIAL], ["mean_ttft_ms", "num_gpus"], is_open=False) == {
        1: pytest.approx(math.log(high / low))
    }
    assert widths([TRIAL], ["num_gpus"], is_open=False) == {}


def test_what_follows_from_a_client_s_figures() -> None:
    found = with_derived(
        {
            "output_throughput": 300.0,
            "total_token_throughput": 900.0,
            "median_tpot_ms": 20.0,
            "p50_ttft_ms": 7.0,
        },
        TRIAL,
    )
    assert found["output_tok_s_per_gpu"] == 150.0
    assert found["total_tok_s_per_gpu"] == 450.0
    assert found["output_tok_s_per_user"] == 50.0
    assert found["median_ttft_ms"] == 7.0
    assert found["usd_per_million_output_tokens"] == pytest.approx(10 / (300 * 3600) * 1e6)


def test_what_an_engine_logs_stands_beside_what_was_predicted() -> None:
    load = build_workload(WorkloadSpec(num_prompts=2))
    logged = {"kv_cache_tokens": 444_176.0, "startup_compile_s": 20.0, "clock": "wall"}
    facts = {f.name: f for f in compare_facts(TRIAL.deployment, load, logged)}
    assert facts.keys() == {"KV cache", "start: compile"}
    cache = facts["KV cache"]
    assert cache.error == pytest.approx(cache.predicted / 444_176 - 1)
    assert facts["start: compile"].predicted > 0
