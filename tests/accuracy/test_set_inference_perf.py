"""inference-perf's rate sweep: features as flags, and what an overloaded stage still measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynosim.accuracy.case import Case
from dynosim.accuracy.sets import inference_perf
from dynosim.sim.workload.columns import Workload


@pytest.fixture(scope="module")
def cases(shared_data: Path) -> dict[str, Case]:
    return {case.row: case for case in inference_perf.read(shared_data)}


def test_every_row_is_a_case_or_left_out_with_a_reason(
    shared_data: Path, cases: dict[str, Case]
) -> None:
    left_out = inference_perf.dropped(shared_data)
    assert left_out == {"speculative decoding": 7, "V0 engine": 7}
    assert len(cases) + 14 == 35


def test_features_are_flags(cases: dict[str, Case]) -> None:
    plain = cases["inference_perf_kubecon_h100.csv.gz:2"].deployment
    assert (plain.max_num_seqs, plain.enable_prefix_caching, plain.enable_chunked_prefill) == (
        192,
        False,
        False,
    )
    cached = cases["inference_perf_kubecon_h100.csv.gz:9"].deployment
    assert (cached.max_num_seqs, cached.enable_prefix_caching, cached.enable_chunked_prefill) == (
        128,
        True,
        True,
    )
    assert cached.backend_version == "0.11.0"


def test_a_stage_is_a_minute_of_evenly_spaced_requests(cases: dict[str, Case]) -> None:
    load = cases["inference_perf_kubecon_h100.csv.gz:3"].workload
    assert isinstance(load, Workload)
    assert len(load) == round(37.97 * 60)
    assert load.arrival_s[1] == pytest.approx(1 / 37.97)
    assert (load.input_tokens[0], load.output_tokens[0]) == (201, 64)


def test_an_overloaded_stage_measures_no_latency(cases: dict[str, Case]) -> None:
    kept_up, overloaded = (
        cases[f"inference_perf_kubecon_h100.csv.gz:{line}"].measured for line in (5, 6)
    )
    assert kept_up["mean_ttft_ms"] == 146.234
    assert overloaded == {"mean_tpot_ms": 26.0958, "request_throughput": 112.855}
