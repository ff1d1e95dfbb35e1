"""NIM 1.0 (TensorRT-LLM inside) under a closed loop of 1 to 250, as GenAI-Perf measured it.

Lengths are fixed and end tokens ignored, so that requests that start together end together: the
waves that form stay together, and TTFT is theirs. Statistics are means.
"""

from __future__ import annotations

from pathlib import Path

from dynosim.accuracy import measured_rows
from dynosim.accuracy.case import Case
from dynosim.accuracy.measured_rows import NoCase, Row, group_of, looked_up
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

SOURCES = ("groundtruth/nim_dli.csv.gz",)

GPUS = {"A100-SXM4-80GB": "a100_sxm", "H100-SXM5-80GB": "h100_sxm"}
MODELS = {
    "meta/meta-llama3-8b-instruct": "meta-llama/Meta-Llama-3-8B-Instruct",
    "meta/meta-llama3-70b-instruct": "meta-llama/Meta-Llama-3-70B-Instruct",
}
MEASURED = {
    "mean_ttft_ms": "ttft_ms_mean",
    "mean_tpot_ms": "tpot_ms",
    "mean_e2el_ms": "e2e_ms",
    "request_throughput": "req_s",
    "output_throughput": "output_tok_s",
}
ASSUMED = (
    "TensorRT-LLM 0.9 in NIM 1.0 (0.9 or 0.10), with kernels measured with 1.0 and later",
    "max_batch_size 256, max_num_tokens 32768 (prompts that arrive together wait for one another "
    "as one step of that size makes them), no chunked context",
    "a 16-bit KV cache, also where the weights have 8 bits",
    "eight waves of requests",
)
WAVES = 8


def read(folder: Path) -> list[Case]:
    """Returns the set's cases."""
    return measured_rows.cases(folder / SOURCES[0], case_of)


def dropped(folder: Path) -> dict[str, int]:
    """Returns reason -> number of rows left out."""
    return measured_rows.dropped(folder / SOURCES[0], case_of)


def case_of(row: Row) -> Case:
    """Returns the case of one row."""
    if row.text("gpu").startswith("unknown"):
        raise NoCase("GPU not stated")
    concurrency = row.integer("concurrency")
    deployment = Deployment(
        model=looked_up(MODELS, row.text("model"), "model"),
        gpu=looked_up(GPUS, row.text("gpu"), "GPU"),
        backend="trtllm",
        backend_version="0.9.0",
        tensor_parallel_size=row.integer("tp"),
        quantization="fp8" if row.text("precision_weights") == "fp8" else None,
        max_num_seqs=256,
        max_num_batched_tokens=32768,
        enable_chunked_prefill=False,
        enable_prefix_caching=False,
        block_size=64,
    )
    workload = WorkloadSpec(
        random_input_len=row.integer("isl"),
        random_output_len=row.integer("osl"),
        max_concurrency=concurrency,
        num_prompts=WAVES * concurrency,
    )
    return Case(
        set="nim",
        group=group_of(deployment),
        row=row.where,
        deployment=deployment,
        workload=workload,
        measured=row.measured(MEASURED),
        assumed=ASSUMED,
        tags={"mode": "agg"},
    )
