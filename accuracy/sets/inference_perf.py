"""Llama-3.1-8B on one H100 under rising constant rates (kubernetes-sigs/inference-perf, 2025-11).

The KubeCon demo's reports: stages of 60 s, 100 prompts of about 200 tokens in turn, 64 tokens out,
each server with other features. Where the client could not send as fast as asked, or the server
fell behind, a mean latency measures how long the stage lasted: those rows keep their token time and
throughput only.
"""

from __future__ import annotations

from pathlib import Path

from dynosim.accuracy import measured_rows
from dynosim.accuracy.case import Case
from dynosim.accuracy.measured_rows import NoCase, Row, group_of
from dynosim.accuracy.repeated_prompts import RepeatedPrompts
from dynosim.sim.deployment import Deployment

FILE = "groundtruth/inference_perf_kubecon_h100.csv.gz"
SOURCES = (FILE,)

STAGE_S = 60.0
SHARED_TOKENS = 128
KEPT_UP = 0.98
"""A stage whose throughput is below this share of the asked rate was overloaded."""

LEFT_OUT = {"vllm+eagle": "speculative decoding", "vllm+v0_engine": "V0 engine"}

STEADY = {"mean_tpot_ms": "tpot_ms", "request_throughput": "req_s"}
LATENCIES = {
    "mean_ttft_ms": "ttft_ms_mean",
    "median_ttft_ms": "ttft_ms_p50",
    "p99_ttft_ms": "ttft_ms_p99",
    "mean_e2el_ms": "e2e_ms",
    "p99_e2el_ms": "e2e_ms_p99",
}


def read(folder: Path) -> list[Case]:
    """Returns a case a row, but for :data:`LEFT_OUT`."""
    return measured_rows.cases(folder / FILE, _case)


def dropped(folder: Path) -> dict[str, int]:
    """Returns reason -> rows that are no cases."""
    return measured_rows.dropped(folder / FILE, _case)


def _case(row: Row) -> Case:
    if row.text("config") in LEFT_OUT:
        raise NoCase(LEFT_OUT[row.text("config")])
    deployment, asked = _deployment(row), row.number("requested_rate")
    prompts = RepeatedPrompts(
        groups=10,
        prompts_per_group=10,
        system_tokens=SHARED_TOKENS,
        prompt_tokens=row.integer("isl"),
        output_tokens=row.integer("osl"),
    )
    overloaded = row.number("req_s") < KEPT_UP * asked
    return Case(
        set="inference_perf",
        group=group_of(deployment),
        row=row.where,
        deployment=deployment,
        workload=prompts.at_constant_rate(asked, STAGE_S),
        measured=row.measured(STEADY if overloaded else STEADY | LATENCIES),
        tags={"load": "open loop", "config": row.text("config")},
    )


def _deployment(row: Row) -> Deployment:
    cached = row.text("config") == "vllm+chunking_and_prefix_caching"
    return Deployment(
        model=row.text("model"),
        gpu="h100_sxm",
        backend="vllm",
        backend_version=row.text("backend_version").removeprefix("v"),
        max_model_len=512,
        max_num_seqs=row.integer("max_batch"),
        gpu_memory_utilization=0.9,
        enable_prefix_caching=cached,
        enable_chunked_prefill=cached,
    )
