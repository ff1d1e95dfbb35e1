"""Result files of benchmark tools, in one set of names and units."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dynosim.accuracy.result_file import case_of, read_results
from dynosim.accuracy.results.base import MeasuredRun
from dynosim.hardware_models.errors import UserError
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec

VLLM = {
    "model_id": "Qwen/Qwen3-8B",
    "num_prompts": 4,
    "completed": 4,
    "request_rate": "inf",
    "max_concurrency": 2,
    "total_input_tokens": 400,
    "total_output_tokens": 80,
    "request_throughput": 2.0,
    "mean_ttft_ms": 50.0,
    "median_tpot_ms": 9.0,
}
SGLANG = {
    "backend": "sglang",
    "completed": 10,
    "request_rate": 4.0,
    "max_concurrency": None,
    "total_input_tokens": 1000,
    "total_output_tokens": 500,
    "mean_ttft_ms": 30.0,
    "mean_e2e_latency_ms": 900.0,
}
GENAI_PERF = {
    "request_count": {"unit": "requests", "avg": 20.0},
    "request_latency": {"unit": "ms", "avg": 800.0, "p50": 790.0},
    "time_to_first_token": {"unit": "ms", "avg": 40.0},
    "inter_token_latency": {"unit": "ms", "avg": 8.0},
    "input_sequence_length": {"avg": 200.0},
    "output_sequence_length": {"avg": 96.0},
    "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 5}}},
}
SERVED = Deployment(model="Qwen/Qwen3-8B", gpu="h100_sxm")


def read(folder: Path, *documents: Any) -> list[MeasuredRun]:
    path = folder / "result.json"
    path.write_text("\n".join(json.dumps(d) for d in documents))
    return read_results(path)


def test_vllm_bench(tmp_path: Path) -> None:
    (run,) = read(tmp_path, VLLM)
    assert (run.input_tokens, run.output_tokens, run.num_prompts) == (100, 20, 4)
    assert (run.request_rate, run.max_concurrency) == (None, 2)
    assert run.measured == {"mean_ttft_ms": 50.0, "median_tpot_ms": 9.0, "request_throughput": 2.0}


def test_sglang_writes_a_run_a_line(tmp_path: Path) -> None:
    first, second = read(tmp_path, SGLANG, SGLANG | {"request_rate": math.inf})
    assert first.measured == {"mean_ttft_ms": 30.0, "mean_e2el_ms": 900.0}
    assert (first.request_rate, second.request_rate) == (4.0, None)
    assert second.where.endswith("result.json:2")


def test_what_genai_perf_calls_inter_token_latency_is_tpot(tmp_path: Path) -> None:
    (run,) = read(tmp_path, GENAI_PERF)
    assert run.measured["mean_tpot_ms"] == 8.0
    assert run.measured["median_e2el_ms"] == 790.0
    assert "mean_itl_ms" not in run.measured
    assert run.max_concurrency == 5


def test_a_file_of_no_known_tool_says_which_are_known(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"result.json: a result file of no known tool\n.*guidellm"):
        read(tmp_path, {"latency": 3})
    (tmp_path / "result.json").write_text('{"a": 1,\n"b"}')
    with pytest.raises(UserError, match=r"result.json:2: neither JSON nor JSON Lines"):
        read_results(tmp_path / "result.json")


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="completed is missing"):
        read(tmp_path, {k: v for k, v in VLLM.items() if k != "completed"})


def test_a_case_has_the_pace_of_the_run_and_its_mean_lengths(tmp_path: Path) -> None:
    case = case_of(*read(tmp_path, VLLM), SERVED)
    assert case.workload == WorkloadSpec(
        random_input_len=100, random_output_len=20, max_concurrency=2, num_prompts=4
    )
    assert case.group == "result.json"
    assert case.assumed == ("every request has the mean lengths",)


def test_listed_lengths_are_taken_one_by_one(tmp_path: Path) -> None:
    listed = {"input_lens": [90, 110, 50, 150], "output_lens": [10, 30, 20, 20]}
    load = case_of(*read(tmp_path, VLLM | listed), SERVED).workload
    assert isinstance(load, Workload)
    assert load.input_tokens.tolist() == [90, 110, 50, 150]
    assert load.output_tokens.tolist() == [10, 30, 20, 20]


def test_lengths_that_the_user_gives_stand_for_the_means(tmp_path: Path) -> None:
    spec = WorkloadSpec(random_input_len=64, random_output_len=16, random_range_ratio=0.5)
    load = case_of(*read(tmp_path, SGLANG), SERVED, spec).workload
    assert isinstance(load, WorkloadSpec)
    assert (load.random_input_len, load.random_range_ratio) == (64, 0.5)
    assert (load.request_rate, load.num_prompts) == (4.0, 10)


# (file, tool, prompts, prompt and answer tokens, rate, cap, mean TTFT and TPOT in ms)
SAMPLES = [
    (
        "vllm_bench_serve_2024_llama405b_8xH100.json",
        ("vllm bench serve", 1000, 215.196, 120.689, 16.0, None, 1486.39, 106.54),
    ),
    (
        "aiperf_0.13.0_profile_export_aiperf.json",
        ("aiperf", 24, 128.0, 32.0, None, 4, 61.07, 9.818),
    ),
    (
        "aiperf_fixture_profile_export_aiperf.json",
        ("aiperf", 64, 100.0, 199.984, None, 1, 30.81, 18.20),
    ),
    (
        "guidellm_0.8.1_benchmarks_trimmed.json",
        ("guidellm", 16, 144.69, 32.0, None, 4, 49.65, 7.262),
    ),
    # Counting chunks the tool itself says 3.48 ms; (483.2 - 33.3) / 61.35 is 7.33.
    (
        "inference_perf_stage_0_lifecycle_metrics.json",
        ("inference-perf", 60, 200.68, 62.35, 1.0048, None, 33.32, 7.333),
    ),
]


@pytest.mark.parametrize(("file", "wanted"), SAMPLES)
def test_files_as_the_tools_wrote_them(
    shared_data: Path, file: str, wanted: tuple[Any, ...]
) -> None:
    (run,) = read_results(shared_data / "bench_result_samples" / file)
    tool, prompts, inputs, outputs, rate, cap, ttft_ms, tpot_ms = wanted
    assert (run.tool, run.num_prompts, run.max_concurrency) == (tool, prompts, cap)
    assert run.request_rate == (rate and pytest.approx(rate, rel=1e-3))
    numbers = [run.input_tokens, run.output_tokens, run.measured["mean_ttft_ms"]]
    assert numbers == pytest.approx([inputs, outputs, ttft_ms], rel=1e-3)
    assert run.measured["mean_tpot_ms"] == pytest.approx(tpot_ms, rel=1e-3)


def test_a_sweep_of_guidellm_is_a_run_for_each_benchmark(shared_data: Path) -> None:
    runs = read_results(shared_data / "bench_result_samples" / "guidellm_report_v2_fixture.json")
    assert [(r.request_rate, r.burstiness) for r in runs] == [(2.0, math.inf), (4.0, math.inf)]


def test_a_sweep_of_aiperf_is_a_run_for_each_combination(shared_data: Path) -> None:
    runs = read_results(shared_data / "bench_result_samples" / "aiperf_0.13.0_sweep_aggregate.json")
    assert [(run.max_concurrency, run.num_prompts) for run in runs] == [(1, 12), (2, 12), (4, 12)]
    assert (runs[0].input_tokens, runs[0].output_tokens) == (64.0, 16.0)
    assert runs[0].measured["mean_ttft_ms"] == pytest.approx(49.946, abs=1e-3)
    assert runs[0].measured["median_e2el_ms"] == pytest.approx(161.456, abs=1e-3)
    assert runs[2].where.endswith("per_combination_metrics[2]")


@pytest.mark.parametrize(
    "file",
    [
        "README.md",
        "aiperf_0.13.0_profile_export_aiperf.csv",
        "aiperf_0.13.0_profile_export_first3.jsonl",
        "aiperf_0.13.0_run_config.json",
        "aiperf_0.13.0_search_history.json",
        "aiperf_0.13.0_sweep_aggregate.csv",
        "guidellm_0.8.1_benchmarks.csv",
    ],
)
def test_other_files_of_the_tools_are_told_apart(shared_data: Path, file: str) -> None:
    with pytest.raises(UserError, match=rf"{file}.*(no known tool|neither JSON nor JSON Lines)"):
        read_results(shared_data / "bench_result_samples" / file)


def test_every_sample_is_read_or_told_apart(shared_data: Path) -> None:
    folder = shared_data / "bench_result_samples"
    runs = {}
    for path in sorted(folder.iterdir()):
        with suppress(UserError):
            runs[path.name] = read_results(path)
    assert len(runs) == 7
    assert all(run.measured and run.num_prompts for found in runs.values() for run in found)


@pytest.mark.parametrize(
    ("document", "failed"),
    [(VLLM | {"failed": 3}, 3), (VLLM, 0)],
)
def test_failed_requests_are_counted(tmp_path: Path, document: dict[str, Any], failed: int) -> None:
    (run,) = read(tmp_path, document)
    assert run.failed == failed
