"""Maximum throughput of TensorRT-LLM: all requests queued at once, fixed lengths (trtllm-bench).

Tables of NVIDIA's performance overview for 0.13 (compiled engines), 0.20, 1.0 and 1.2 (PyTorch
backend). Those for 0.20 were measured with CUDA graphs off, as their page says.

Left out: attention of each GPU on its own requests (data parallelism), and GH200 joined by links
that the source does not name.
"""

from __future__ import annotations

from pathlib import Path

from dynosim.accuracy import measured_rows
from dynosim.accuracy.case import NO_FRONTEND, Case
from dynosim.accuracy.measured_rows import NoCase, Row, group_of, looked_up, room_for
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

SOURCES = ("groundtruth/trtllm_perf_overview_ifb.csv.gz",)

GPUS = {
    "A100-SXM4-80GB": "a100_sxm",
    "B200-SXM-180GB": "b200_sxm",
    "B300-SXM-288GB (beta)": "b300_sxm",
    "GB200-NVL72": "gb200",
    "GB300-NVL72 (beta)": "gb300",
    "GH200-120GB(96GB HBM3)": "gh200",
    "H100-SXM5-80GB": "h100_sxm",
    "H200-SXM-141GB": "h200_sxm",
    "L40S": "l40s",
    "RTX PRO 6000 Blackwell Server": "rtx_pro_6000_server",
}
PLAIN = {
    "GPTJ 6B": "EleutherAI/gpt-j-6b",
    "LLaMA v2 7B": "meta-llama/Llama-2-7b-hf",
    "LLaMA v2 70B": "meta-llama/Llama-2-70b-hf",
    "LLaMA v3.1 8B": "meta-llama/Llama-3.1-8B-Instruct",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "LLaMA v3.1 70B": "meta-llama/Llama-3.1-70B-Instruct",
    "Llama-3.1-70B": "meta-llama/Llama-3.1-70B-Instruct",
    "Llama-3.3-70B": "meta-llama/Llama-3.3-70B-Instruct",
    "Llama-3.1-405B": "meta-llama/Llama-3.1-405B-Instruct",
    "Llama-4-Scout-17B-16E": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "Llama-4-Maverick-17B-128E": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "Mistral 7B": "mistralai/Mistral-7B-v0.1",
    "Mixtral 8x7B": "mistralai/Mixtral-8x7B-v0.1",
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B",
}
FP4 = {
    "DeepSeek-R1-0528": "nvidia/DeepSeek-R1-0528-NVFP4",
    "Llama-3.1-405B": "nvidia/Llama-3.1-405B-Instruct-NVFP4",
    "Llama-3.3-70B": "nvidia/Llama-3.3-70B-Instruct-NVFP4",
    "Qwen3-30B-A3B": "nvidia/Qwen3-30B-A3B-NVFP4",
    "Qwen3-235B-A22B": "nvidia/Qwen3-235B-A22B-NVFP4",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "gpt-oss-120b": "openai/gpt-oss-120b",
}
MEASURED = {"output_throughput": "output_tok_s", "request_throughput": "req_s"}
EAGER = {"eager_layer_s": 260e-6}
BATCH_TOKENS = 8192
MOST_PROMPTS = 6000
"""So many of the queued requests are simulated: several times what is in flight at once."""


def read(folder: Path) -> list[Case]:
    """Returns the set's cases."""
    return measured_rows.cases(folder / SOURCES[0], case_of)


def dropped(folder: Path) -> dict[str, int]:
    """Returns reason -> number of rows left out."""
    return measured_rows.dropped(folder / SOURCES[0], case_of)


def case_of(row: Row) -> Case:
    """Returns the case of one row."""
    if row.integer("dp") > 1:
        raise NoCase("attention with data parallelism")
    if row.text("gpu").startswith("GH200") and row.integer("tp") > 1:
        raise NoCase("links between the GPUs not stated")
    version, *engine = row.text("backend_version").split()
    early_pytorch = bool(engine) and version.startswith("0.")
    precision = row.text("precision_weights")
    names = FP4 if precision == "fp4" else PLAIN
    model = looked_up(names, row.text("model"), f"model in {precision}")
    isl, osl = row.integer("isl"), row.integer("osl")
    deployment = Deployment(
        model=model,
        gpu=looked_up(GPUS, row.text("gpu"), "GPU"),
        backend="trtllm",
        backend_version="1.0.0" if early_pytorch else version,
        tensor_parallel_size=row.integer("tp"),
        pipeline_parallel_size=row.integer("pp"),
        enable_expert_parallel=row.integer("ep") > 1,
        quantization="fp8" if precision == "fp8" else None,
        kv_cache_dtype="fp8" if row.text("precision_kv") == "fp8" else "auto",
        gpu_memory_utilization=0.95 if early_pytorch else 0.9,
        enforce_eager=early_pytorch,
        max_model_len=room_for(model, isl + osl),
        max_num_seqs=2048,
        max_num_batched_tokens=BATCH_TOKENS,
        enable_prefix_caching=False,
    )
    workload = WorkloadSpec(
        random_input_len=isl,
        random_output_len=osl,
        num_prompts=min(row.integer("num_requests"), MOST_PROMPTS),
    )
    return Case(
        set="trtllm_max_load",
        group=group_of(deployment),
        row=row.where,
        deployment=deployment,
        workload=workload,
        measured=row.measured(MEASURED),
        overheads={**NO_FRONTEND, **(EAGER if early_pytorch else {})},
        assumed=_assumed(early_pytorch),
        tags={"mode": "max load", "version": version},
    )


def _assumed(early_pytorch: bool) -> tuple[str, ...]:
    common = ("max_batch_size 2048 and max_num_tokens 8192", f"{MOST_PROMPTS} requests at most")
    early = ("TensorRT-LLM 1.0 for 0.20's PyTorch backend", "a layer's launch as in vLLM: 260 us")
    return (*common, *early) if early_pytorch else common
