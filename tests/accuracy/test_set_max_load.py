"""TensorRT-LLM's tables of maximum throughput, MLPerf and AccelMark as cases."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dynosim.accuracy.measured_rows import Row, rows
from dynosim.accuracy.sets import accelmark, mlperf, trtllm_max_load
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec

MAX_LOAD = {
    "gpu": "B200-SXM-180GB",
    "backend_version": "1.0.0 pytorch",
    "model": "Llama-3.3-70B",
    "precision_weights": "fp4",
    "precision_kv": "fp8",
    **{"tp": "1", "pp": "1", "ep": "1", "dp": "1", "isl": "1000", "osl": "2000"},
    **{"num_requests": "3000", "output_tok_s": "4000", "req_s": "2"},
}
MLPERF = {
    "gpu": "NVIDIA B200-SXM-180GB",
    "benchmark": "llama3.1-405b",
    "scenario": "Server",
    "chunked_prefill": "True",
    "notes": "B200 TGP 1000W; NVIDIA config: tp=4 pp=1 max_num_tokens=2048 policy=max_util",
    **{"n_gpus": "8", "tp": "4.0", "pp": "1.0", "max_batch": "256.0", "req_s": "1.9"},
    **{"ttft_slo_ms": "6000", "tpot_slo_ms": "175"},
}
ACCELMARK = {
    "gpu": "NVIDIA H200",
    "backend": "vllm",
    "backend_version": "0.7.3",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "tp": "1",
    "suite": "suite_A",
    "scenario": "online",
    "dataset": "sharegpt_standard_v1",
    "load_mode": "open-loop Poisson, 300 requests, in-process async engine (no HTTP), streaming",
    "request_rate": "5.0",
    **{"ttft_ms_p50": "26", "ttft_ms_p99": "59", "tpot_ms": "10", "tpot_ms_p99": ""},
}


class TestMaxLoad:
    def test_a_row_by_hand(self) -> None:
        case = trtllm_max_load.case_of(Row(MAX_LOAD, "here:2"))
        assert case.deployment.model == "nvidia/Llama-3.3-70B-Instruct-NVFP4"
        assert (case.deployment.backend_version, case.deployment.max_model_len) == ("1.0.0", 3000)
        assert not case.deployment.enforce_eager
        assert case.workload == WorkloadSpec(
            random_input_len=1000, random_output_len=2000, num_prompts=3000
        )
        assert case.measured == {"output_throughput": 4000.0, "request_throughput": 2.0}

    def test_the_tables_for_0_20_were_measured_without_graphs(self) -> None:
        early = {**MAX_LOAD, "backend_version": "0.20.0 pytorch"}
        deployment = trtllm_max_load.case_of(Row(early, "here:2")).deployment
        assert deployment.enforce_eager
        assert deployment.backend_version == "1.0.0"

    def test_attention_with_data_parallelism_is_left_out(self) -> None:
        with pytest.raises(trtllm_max_load.NoCase, match="data parallelism"):
            trtllm_max_load.case_of(Row({**MAX_LOAD, "dp": "4"}, "here:2"))


class TestMlperf:
    def test_a_server_result_is_a_rate_to_search_for_one_replica(self) -> None:
        case = mlperf.case_of(Row(MLPERF, "here:2"))
        # 1.9 requests a second over two replicas of four GPUs, 57 in a minute: at least 500.
        assert case.measured == {"request_throughput": 0.95}
        assert case.limits_ms == {"p99_ttft_ms": 6000.0, "p99_tpot_ms": 175.0}
        assert isinstance(case.workload, WorkloadSpec)
        assert (case.workload.request_rate, case.workload.num_prompts) == (0.95, 500)
        assert case.deployment.max_num_batched_tokens == 2048
        assert case.deployment.enable_chunked_prefill

    def test_an_offline_result_is_a_throughput(self) -> None:
        case = mlperf.case_of(Row({**MLPERF, "scenario": "Offline"}, "here:2"))
        assert isinstance(case.workload, WorkloadSpec)
        assert (case.workload.request_rate, case.workload.num_prompts) == (None, 6 * 256)
        assert not case.limits_ms

    def test_a_system_whose_layout_is_not_known_is_left_out(self) -> None:
        with pytest.raises(mlperf.NoCase, match="layout"):
            mlperf.case_of(Row({**MLPERF, "tp": ""}, "here:2"))


class TestAccelmark:
    def test_a_row_by_hand(self) -> None:
        case = accelmark.case_of(Row(ACCELMARK, "here:2"))
        assert case.measured == {"median_ttft_ms": 26, "p99_ttft_ms": 59, "median_tpot_ms": 10}
        assert case.deployment.backend_version == "0.9.0"
        assert "vLLM 0.9.0, the oldest known, for 0.7.3" in case.assumed
        load = case.workload
        assert isinstance(load, Workload)
        assert len(load) == 300
        assert load.arrival_s[-1] == pytest.approx(60.0, rel=0.2)

    def test_lengths_have_the_means_that_the_offline_rates_imply(self) -> None:
        prompts = accelmark.exponential_lengths(300, 265)
        answers = accelmark.capped_lengths(300, 350, 512)
        assert prompts.mean() == pytest.approx(265, rel=0.02)
        assert answers.mean() == pytest.approx(350, rel=0.02)
        # 2 x 350 / 512 - 1 of the answers reach the cap.
        assert (answers == 512).mean() == pytest.approx(0.367, abs=0.01)
        assert np.all(accelmark.capped_lengths(50, 256, 256) == 256)

    def test_requests_of_a_run_that_sends_one_after_the_other(self) -> None:
        serial = {**ACCELMARK, "scenario": "interactive", "load_mode": "serial, one at a time"}
        load = accelmark.case_of(Row(serial, "here:2")).workload
        assert isinstance(load, Workload)
        assert (load.max_concurrency, load.arrival_s.max()) == (1, 0.0)


@pytest.mark.parametrize("measured_set", [trtllm_max_load, mlperf, accelmark])
def test_every_row_is_a_case_or_has_a_reason(measured_set: ModuleType, shared_data: Path) -> None:
    cases, dropped = measured_set.read(shared_data), measured_set.dropped(shared_data)
    total = sum(1 for _ in rows(shared_data / measured_set.SOURCES[0]))
    assert len(cases) + sum(dropped.values()) == total
    assert all(case.measured for case in cases)
