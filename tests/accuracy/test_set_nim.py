"""NIM's closed loops as cases."""

from pathlib import Path

import pytest

from dynosim.accuracy.measured_rows import Row, rows
from dynosim.accuracy.run import run_case
from dynosim.accuracy.sets import nim
from dynosim.sim.workload.spec import WorkloadSpec

VALUES = {
    "gpu": "H100-SXM5-80GB",
    "model": "meta/meta-llama3-8b-instruct",
    "tp": "1",
    "precision_weights": "fp16",
    "concurrency": "10",
    "isl": "2000",
    "osl": "200",
    "ttft_ms_mean": "446.33",
    "tpot_ms": "9.813",
    "e2e_ms": "2399.1",
    "req_s": "4.16",
    "output_tok_s": "832",
}


def test_a_row_by_hand() -> None:
    case = nim.case_of(Row(VALUES, "here:2"))
    assert case.group == "h100_sxm trtllm meta-llama/Meta-Llama-3-8B-Instruct"
    assert case.workload == WorkloadSpec(
        random_input_len=2000, random_output_len=200, max_concurrency=10, num_prompts=80
    )
    assert case.deployment.quantization is None
    assert not case.deployment.enable_chunked_prefill
    assert case.measured["request_throughput"] == 4.16
    fp8 = nim.case_of(Row({**VALUES, "precision_weights": "fp8"}, "here:2"))
    assert (fp8.deployment.quantization, fp8.deployment.kv_cache_dtype) == ("fp8", "auto")


def test_fixed_lengths_keep_a_wave_together() -> None:
    # Ten prompts of 2,000 fit one step of 32,768 tokens and wait for one another: TTFT is that of
    # one prompt times the wave's size, less the start of the first.
    ten, one = (
        run_case(nim.case_of(Row({**VALUES, "concurrency": c}, "here:2"))).predicted
        for c in ("10", "1")
    )
    assert ten["mean_prefill_ms"] > 6.0 * one["mean_prefill_ms"]


def test_a_row_without_its_gpu_is_left_out() -> None:
    with pytest.raises(nim.NoCase, match="GPU not stated"):
        nim.case_of(Row({**VALUES, "gpu": "unknown (cloud)"}, "here:2"))


def test_every_row_is_a_case_or_has_a_reason(shared_data: Path) -> None:
    cases, dropped = nim.read(shared_data), nim.dropped(shared_data)
    total = sum(1 for _ in rows(shared_data / nim.SOURCES[0]))
    assert len(cases) + sum(dropped.values()) == total
    assert dropped == {"GPU not stated": 7}
