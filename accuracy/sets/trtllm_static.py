"""Static batches in TensorRT-LLM 0.9's C++ engine: prefill and token time, without a server.

All requests of a batch are there at once, their prompts are computed in one step, then all decode
together: TTFT is the prefill of the whole batch, TPOT the mean token step. Nothing of a server is
in the figures. Lengths are fixed.

Left out: Mixtral, whose random weights send all tokens to the same two experts (32 sequences take
no longer than one), and GH200 joined by links that the source does not name.
"""

from __future__ import annotations

from pathlib import Path

from dynosim.accuracy import measured_rows
from dynosim.accuracy.case import NO_FRONTEND, Case
from dynosim.accuracy.measured_rows import NoCase, Row, group_of, looked_up, room_for
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

SOURCES = ("groundtruth/trtllm_0.9.0_static_dli.csv.gz",)

GPUS = {
    "A100-SXM4-80GB": "a100_sxm",
    "GH200-120GB(96GB HBM3)": "gh200",
    "H100-NVL-94GB": "h100_nvl",
    "H100-SXM5-80GB": "h100_sxm",
    "H200-SXM-141GB": "h200_sxm",
    "L40": "l40",
    "L40S": "l40s",
}
MODELS = {
    "EleutherAI/gpt-j-6b": "EleutherAI/gpt-j-6b",
    "meta-llama/Llama-2-7b": "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-2-13b": "meta-llama/Llama-2-13b-hf",
    "meta-llama/Llama-2-70b": "meta-llama/Llama-2-70b-hf",
    "mistralai/Mistral-7B": "mistralai/Mistral-7B-v0.1",
    "tiiuae/falcon-180B": "tiiuae/falcon-180B",
}
MEASURED = {
    "mean_ttft_ms": "ttft_ms_mean",
    "mean_tpot_ms": "tpot_ms",
    "mean_e2el_ms": "e2e_ms",
    "output_throughput": "output_tok_s",
}
ASSUMED = (
    "kernels of TensorRT-LLM 1.0 and later, the oldest measured, for 0.9",
    "an 8-bit KV cache where the weights have 8 bits",
)
BLOCK_TOKENS = 64
ANY_POOL_BYTES = 2**30


def read(folder: Path) -> list[Case]:
    """Returns the set's cases."""
    return measured_rows.cases(folder / SOURCES[0], case_of)


def dropped(folder: Path) -> dict[str, int]:
    """Returns reason -> number of rows left out."""
    return measured_rows.dropped(folder / SOURCES[0], case_of)


def case_of(row: Row) -> Case:
    """Returns the case of one row."""
    if row.text("model") == "mistralai/Mixtral-8x7B":
        raise NoCase("random weights send all tokens to the same experts")
    if row.text("gpu").startswith("GH200") and row.integer("tp") > 1:
        raise NoCase("links between the GPUs not stated")
    batch, isl, osl = (row.integer(name) for name in ("max_batch", "isl", "osl"))
    is_fp8 = row.text("precision_weights") == "fp8"
    model = looked_up(MODELS, row.text("model"), "model")
    deployment = Deployment(
        model=model,
        gpu=looked_up(GPUS, row.text("gpu"), "GPU"),
        backend="trtllm",
        backend_version="0.9.0",
        tensor_parallel_size=row.integer("tp"),
        quantization="fp8" if is_fp8 else None,
        kv_cache_dtype="fp8" if is_fp8 else "auto",
        max_model_len=room_for(model, isl + osl),
        max_num_seqs=batch,
        max_num_batched_tokens=batch * isl,
        enable_prefix_caching=False,
        block_size=BLOCK_TOKENS,
        # It ran, so its blocks fitted; the pool's bytes stand for nothing beside their number.
        num_gpu_blocks_override=1 + batch * -(-(isl + osl) // BLOCK_TOKENS),
        kv_cache_memory_bytes=ANY_POOL_BYTES,
    )
    workload = WorkloadSpec(random_input_len=isl, random_output_len=osl, num_prompts=batch)
    return Case(
        set="trtllm_static",
        group=group_of(deployment),
        row=row.where,
        deployment=deployment,
        workload=workload,
        measured=row.measured(MEASURED),
        overheads=NO_FRONTEND,
        assumed=ASSUMED if is_fp8 else ASSUMED[:1],
        tags={"mode": "static", "custom_allreduce": row.text("custom_allreduce").lower()},
    )
