"""Rows of the serving sample become the runs that they were."""

from __future__ import annotations

import csv
import gzip

import pytest

from dynosim.accuracy.sets import silicon, silicon_sample

ROW = {
    "source": "InferenceMAX/InferenceX",
    "serving_mode": "agg",
    "gpu": "H100-SXM5-80GB",
    "backend": "vllm",
    "backend_version": "0.18.0",
    "model": "openai/gpt-oss-120b",
    "precision_weights": "fp4",
    "tp": "2.0",
    "ep": "1.0",
    "attention_dp": "1.0",
    "isl": "1024",
    "osl": "8192",
    "concurrency": "16.0",
    "date": "2026-03-25",
    "ttft_ms_p50": "90",
    "ttft_ms_mean": "",
    "tpot_ms": "9.5",
}
GAP = {"source": "NVIDIA AIC gap analysis", "ttft_ms_p50": "", "ttft_ms_mean": "300", "date": ""}


@pytest.fixture
def folder(tmp_path):
    """Writes rows, each a change of ROW, as the file that the adapter reads."""

    def write(*changes):
        path = tmp_path / silicon.SOURCES[0]
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path, "wt", newline="") as lines:
            writer = csv.DictWriter(lines, ROW)
            writer.writeheader()
            writer.writerows({**ROW, **change} for change in changes)
        return tmp_path

    return write


def test_inferencex_runs_ten_prompts_a_slot_of_uniform_lengths(folder):
    (case,) = silicon.read(folder({}))
    load = case.workload
    assert (load.max_concurrency, load.num_prompts) == (16, 160)
    assert (load.random_input_len, load.random_output_len) == (1024, 8192)
    assert (load.random_range_ratio, load.random_range_convention) == (0.8, "inferencex")
    assert case.measured == {"mean_ttft_ms": 90.0, "mean_tpot_ms": 9.5}
    assert case.row == "inferencemax_aic_silicon.csv.gz:2"


def test_its_recipe_sets_the_flags_of_the_engine(folder):
    (case,) = silicon.read(folder({}))
    deployment = case.deployment
    assert deployment.model == "openai/gpt-oss-120b"
    assert deployment.tensor_parallel_size == 2
    assert deployment.enable_prefix_caching is False
    assert (deployment.max_num_seqs, deployment.max_num_batched_tokens) == (16, 8192)
    assert case.overheads == {"asynchronous_scheduling": True}


def test_a_flag_that_follows_the_run_is_computed(folder):
    change = {"backend": "tensorrt-llm", "model": "deepseek-ai/DeepSeek-R1-0528"}
    change |= {"precision_weights": "fp8", "gpu": "H200-SXM-141GB", "tp": "8.0"}
    (case,) = silicon.read(folder(change))
    assert case.deployment.max_num_batched_tokens == 1152  # 1024 + 16 + 64, in steps of 64
    assert case.deployment.enable_chunked_prefill is False


@pytest.mark.parametrize(
    ("weights", "model"),
    [("fp8", "nvidia/Llama-3.1-70B-Instruct-FP8"), ("fp4", "nvidia/Llama-3.3-70B-Instruct-NVFP4")],
)
def test_a_run_in_fp8_is_not_simulated_in_bf16(folder, weights, model):
    change = {"model": "meta-llama/Llama-3.1-70B", "precision_weights": weights}
    (case,) = silicon.read(folder(change))
    assert case.deployment.model == model
    assert case.deployment.kv_cache_dtype == "fp8"


def test_the_gap_analysis_ran_fixed_lengths_with_default_flags(folder):
    (case,) = silicon.read(folder({**GAP, "model": "Qwen/Qwen3-32B", "precision_weights": ""}))
    assert case.workload.random_range_ratio is None
    assert case.measured["mean_ttft_ms"] == 300.0
    assert case.deployment.max_num_batched_tokens is None
    assert any("bf16" in text for text in case.assumed)
    assert any("ten prompts" in text for text in case.assumed)


def test_a_version_beyond_the_known_is_the_nearest_and_said(folder):
    (case,) = silicon.read(folder({"backend_version": "0.8.1"}))
    assert case.deployment.backend_version == "0.9.0"
    assert any("the source says 0.8.1" in text for text in case.assumed)


def test_an_unnamed_version_is_that_of_the_day(folder):
    (case,) = silicon.read(folder({"backend_version": "", "date": "2025-11-20"}))
    assert case.deployment.backend_version == "0.11.0"


def test_ttft_with_compiling_in_it_does_not_count(folder):
    change = {"backend": "sglang", "model": "deepseek-ai/DeepSeek-R1-0528", "tp": "8.0"}
    change |= {"gpu": "B200-SXM-180GB", "backend_version": "0.5.9", "precision_weights": "fp8"}
    early, late = silicon.read(folder({**change, "date": "2025-11-10"}, change))
    assert set(early.measured) == {"mean_tpot_ms"}
    assert set(late.measured) == {"mean_tpot_ms", "mean_ttft_ms"}


@pytest.mark.parametrize(
    ("tp", "ranks", "gpus"),
    [("1.0", "8.0", 8), ("8.0", "64.0", 8), ("4.0", "4.0", 4), ("2.0", "4.0", 2)],
)
def test_attention_in_data_parallel_makes_every_gpu_a_rank(folder, tp, ranks, gpus):
    change = {"backend": "tensorrt-llm", "backend_version": "1.2.0rc2", "tp": tp}
    (case,) = silicon.read(folder({**change, "ep": "8.0", "attention_dp": ranks}))
    deployment = case.deployment
    assert (deployment.tensor_parallel_size, deployment.data_parallel_size) == (1, gpus)
    assert deployment.enable_expert_parallel


def test_ranks_of_vllm_are_tensor_and_expert_parallel(folder):
    (case,) = silicon.read(folder({"tp": "4.0", "ep": "16.0", "attention_dp": "4.0"}))
    deployment = case.deployment
    assert (deployment.tensor_parallel_size, deployment.data_parallel_size) == (4, 1)
    assert deployment.enable_expert_parallel


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"serving_mode": "disagg"}, "disaggregated"),
        ({"tp": "72.0", "gpu": "GB200-NVL72"}, "more than 8 GPUs"),
        ({"model": "zhipuai/GLM-5", "precision_weights": "fp8"}, "no architecture"),
    ],
)
def test_a_row_that_cannot_be_told_is_left_out_with_its_reason(folder, change, reason):
    written = folder({}, change)
    assert len(silicon.read(written)) == 1
    ((why, rows),) = silicon.dropped(written).items()
    assert reason in why
    assert rows == 1


def test_a_copy_of_a_run_counts_once(folder):
    kimi = {"model": "moonshotai/Kimi-K2.5", "precision_weights": "int4", "tp": "8.0"}
    kimi |= {"gpu": "H200-SXM-141GB"}
    written = folder({**kimi, "tpot_ms": "9.504"}, {**kimi, **GAP, "ttft_ms_mean": "90.0"})
    assert len(silicon.read(written)) == 1
    assert silicon.dropped(written) == {"the same run as another row": 1}


def test_the_wheels_sample_is_read_in_its_own_columns(checkout):
    cases = silicon_sample.read(checkout / "tests" / "cli" / "measured")
    sglang = next(c for c in cases if c.deployment.backend == "sglang")
    # 16 in the file: the product of 4 and 4.
    assert sglang.deployment.tensor_parallel_size == 4
    assert sglang.deployment.enable_expert_parallel
    assert sglang.deployment.model == "nvidia/DeepSeek-R1-0528-NVFP4"
    assert cases[0].workload.max_concurrency == 4


def test_measured_rows_and_their_bars(shared_data):
    """The whole sample can be read, and nine rows in ten of aggregated serving become cases."""
    cases, left_out = silicon.read(shared_data), silicon.dropped(shared_data)
    aggregated = len(cases) + sum(n for why, n in left_out.items() if "disagg" not in why)
    assert len(cases) > 0.85 * aggregated
    assert len({c.group for c in cases}) > 30
