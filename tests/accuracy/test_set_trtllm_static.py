"""Static batches of TensorRT-LLM as cases."""

from pathlib import Path

import pytest

from dynosim.accuracy.measured_rows import Row, rows
from dynosim.accuracy.run import run_case
from dynosim.accuracy.sets import trtllm_static
from dynosim.sim.workload.spec import WorkloadSpec

VALUES = {
    "gpu": "H100-SXM5-80GB",
    "model": "meta-llama/Llama-2-7b",
    "tp": "1",
    "precision_weights": "fp8",
    "max_batch": "64",
    "isl": "2048",
    "osl": "128",
    "custom_allreduce": "Yes",
    "ttft_ms_mean": "1795.03",
    "tpot_ms": "15.7534",
    "e2e_ms": "3795.71",
    "output_tok_s": "2158.2",
}


def test_a_row_by_hand() -> None:
    case = trtllm_static.case_of(Row(VALUES, "here:2"))
    assert case.group == "h100_sxm trtllm meta-llama/Llama-2-7b-hf"
    assert case.workload == WorkloadSpec(
        random_input_len=2048, random_output_len=128, num_prompts=64
    )
    deployment = case.deployment
    assert (deployment.quantization, deployment.kv_cache_dtype) == ("fp8", "fp8")
    assert (deployment.max_num_seqs, deployment.max_num_batched_tokens) == (64, 64 * 2048)
    # 2,176 tokens are 34 blocks of 64.
    assert deployment.num_gpu_blocks_override == 1 + 64 * 34
    assert case.measured["mean_tpot_ms"] == 15.7534
    assert case.overheads["frontend_s"] == 0.0


def test_the_whole_batch_enters_with_the_first_step_and_leaves_with_the_last() -> None:
    predicted = run_case(trtllm_static.case_of(Row(VALUES, "here:2"))).predicted
    assert predicted["p99_ttft_ms"] == pytest.approx(predicted["median_ttft_ms"])
    assert predicted["mean_queue_ms"] == 0.0
    assert predicted["preemptions"] == 0
    total_ms = predicted["mean_ttft_ms"] + 127 * predicted["mean_tpot_ms"]
    assert predicted["mean_e2el_ms"] == pytest.approx(total_ms)
    assert predicted["mean_ttft_ms"] == pytest.approx(1795.03, rel=0.15)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"model": "mistralai/Mixtral-8x7B"}, "same experts"),
        ({"gpu": "GH200-120GB(96GB HBM3)", "tp": "2"}, "links"),
        ({"gpu": "abacus"}, "no card for the GPU abacus"),
    ],
)
def test_rows_that_are_left_out(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(trtllm_static.NoCase, match=reason):
        trtllm_static.case_of(Row({**VALUES, **cells}, "here:2"))


def test_every_row_is_a_case_or_has_a_reason(shared_data: Path) -> None:
    cases, dropped = trtllm_static.read(shared_data), trtllm_static.dropped(shared_data)
    total = sum(1 for _ in rows(shared_data / trtllm_static.SOURCES[0]))
    assert len(cases) + sum(dropped.values()) == total
    assert len({case.row for case in cases}) == len(cases)
