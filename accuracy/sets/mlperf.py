"""MLPerf Inference 5.1, language models on NVIDIA GPUs: throughput offline, largest rate online.

A server result stands where the 99th percentile just meets its limit: its latencies say nothing,
its rate does, and the rate is what is searched. Only results whose TensorRT-LLM layout NVIDIA
published are taken, one replica of it with its share of the requests. Of the data sets only mean
lengths are known.
"""

from __future__ import annotations

from pathlib import Path

from dynosim.accuracy import measured_rows
from dynosim.accuracy.case import NO_FRONTEND, Case
from dynosim.accuracy.measured_rows import NoCase, Row, group_of, looked_up
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

SOURCES = ("groundtruth/mlperf_v5.1_llm.csv.gz",)

GPUS = {
    "NVIDIA B200-SXM-180GB": "b200_sxm",
    "NVIDIA GB200": "gb200",
    "NVIDIA GB300": "gb300",
}
MODELS = {
    "llama2-70b-99.9": "nvidia/Llama-3.3-70B-Instruct-NVFP4",
    "llama3.1-8b": "nvidia/Llama-3.1-8B-Instruct-NVFP4",
    "llama3.1-405b": "nvidia/Llama-3.1-405B-Instruct-NVFP4",
}
MEAN_TOKENS = {
    "llama2-70b-99.9": (294, 294),
    "llama3.1-8b": (778, 73),
    "llama3.1-405b": (9428, 684),
}
"""Mean prompt and answer of each benchmark's data set, as the set of rows says."""
VARIATION = 0.8
ASSUMED = (
    "lognormal lengths with a coefficient of variation of 0.8 about the known means",
    "for Llama 2 70B the 3.3 of that shape, whose vocabulary is larger",
)
OFFLINE_WAVES = 6
"""Requests offline, in multiples of those that run at once: the real runs have hours of them."""
SERVER_SECONDS = 60.0
FEWEST_REQUESTS = 500
"""Arrivals online cover a minute, in which a rate beyond capacity shows; the real runs have ten."""


def read(folder: Path) -> list[Case]:
    """Returns the set's cases."""
    return measured_rows.cases(folder / SOURCES[0], case_of)


def dropped(folder: Path) -> dict[str, int]:
    """Returns reason -> number of rows left out."""
    return measured_rows.dropped(folder / SOURCES[0], case_of)


def case_of(row: Row) -> Case:
    """Returns the case of one row."""
    if not row.text("tp"):
        raise NoCase("layout of the engines not published")
    if row.text("benchmark") == "llama2-70b-99":
        raise NoCase("the same run as llama2-70b-99.9")
    deployment = _deployment(row)
    replicas = row.integer("n_gpus") // deployment.gpus_per_replica
    rate = row.number("req_s") / replicas
    is_offline = row.text("scenario") == "Offline"
    if is_offline:
        num_prompts = OFFLINE_WAVES * row.integer("max_batch")
    else:
        num_prompts = max(FEWEST_REQUESTS, round(SERVER_SECONDS * rate))
    isl, osl = MEAN_TOKENS[row.text("benchmark")]
    workload = WorkloadSpec(
        random_input_len=isl,
        random_output_len=osl,
        random_input_cv=VARIATION,
        random_output_cv=VARIATION,
        num_prompts=num_prompts,
        request_rate=None if is_offline else rate,
    )
    limits_ms = {f"p99_{k}_ms": row.number(f"{k}_slo_ms") for k in ("ttft", "tpot")}
    return Case(
        set="mlperf",
        group=group_of(deployment),
        row=row.where,
        deployment=deployment,
        workload=workload,
        measured={"request_throughput": rate},
        overheads=NO_FRONTEND,
        limits_ms={} if is_offline else limits_ms,
        assumed=ASSUMED,
        tags={"mode": row.text("scenario").lower()},
    )


def _deployment(row: Row) -> Deployment:
    return Deployment(
        model=looked_up(MODELS, row.text("benchmark"), "benchmark"),
        gpu=looked_up(GPUS, row.text("gpu"), "GPU"),
        backend="trtllm",
        backend_version="1.0.0",
        tensor_parallel_size=row.integer("tp"),
        pipeline_parallel_size=row.integer("pp"),
        kv_cache_dtype="fp8",
        max_num_seqs=row.integer("max_batch"),
        max_num_batched_tokens=_step_tokens(row.text("notes")),
        enable_chunked_prefill=row.text("chunked_prefill") == "True",
        scheduling_policy="max_utilization",
        enable_prefix_caching=False,
    )


def _step_tokens(notes: str) -> int:
    """Returns the ``max_num_tokens=`` that stands in the notes."""
    return int(notes.partition("max_num_tokens=")[2].split()[0])
