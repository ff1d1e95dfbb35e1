"""Own tables of Llama-3.1-8B on an H100, made up, and steps that take exactly what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.verification.step_fit import StepCosts
from dynosim.verification.stepped.engine import Work
from dynosim.verification.stepped.step_record import StepRecord, write_step_log

HEADER = "gpu: H100\nbackend: vllm\nversion: 0.24.0\ndevice: NVIDIA H100 80GB HBM3\nsource: me\n"
SERVED = """model: meta-llama/Llama-3.1-8B
gpu: h100
kernel_tables: {tables}
max_num_seqs: 64
max_num_batched_tokens: 512
enforce_eager: true
async_scheduling: false
"""
SITES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
STEP_S, SAMPLED_S, LINEAR, ATTENTION = 3e-3, 50e-6, 1.25, 0.8


def tables(folder: Path) -> str:
    """Writes tables of Llama-3.1-8B's shapes, in which a step's parts grow unlike each other."""
    folder.joinpath("tables.yaml").write_text(HEADER)
    rows = [f"bfloat16,{n},{k},{m},{400 + m * n / 4096}" for n, k in SITES for m in (1, 64, 512)]
    text = "\n".join(["gemm_dtype,n,k,m,latency_us", *rows])
    folder.joinpath("gemm.csv").write_text(text + "\n")
    sizes = [(b, n) for b in (12288, 16384, 24576, 86016, 1539072) for n in (1, 64, 512)]
    lines = [f"{b},{n},{2 + b * n / 2e7}" for b, n in sizes]
    text = "\n".join(["bytes_per_token,num_tokens,latency_us", *lines])
    folder.joinpath("elementwise.csv").write_text(text + "\n")
    heads = "attn_dtype,kv_cache_dtype,head_dim,window_size,num_key_value_heads,num_heads"
    same = "bfloat16,bfloat16,128,0,8,32"
    prefill = [f"{same},1,{n},{5 + n * n / 500}" for n in (16, 128, 512, 2048)]
    decode = [f"{same},{b},{n},{5 + b * n / 40}" for b in (1, 8, 64) for n in (16, 512, 4096)]
    for name, axis, lines in (
        ("context_attention", "isl", prefill),
        ("generation_attention", "kv_tokens", decode),
    ):
        head = f"{heads},batch_size,{axis},latency_us"
        folder.joinpath(f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")
    return str(folder)


def arguments(**more: str) -> EngineArgs:
    return EngineArgs(
        model="meta-llama/Llama-3.1-8B",
        gpu="h100",
        max_num_seqs=64,
        max_num_batched_tokens=512,
        enforce_eager=True,
        async_scheduling=False,
        **more,  # type: ignore[arg-type]
    )


def steps(engine: ResolvedEngine, seed: int) -> list[StepRecord]:
    """Returns steps of all kinds whose costs are exactly of the form that is fitted."""
    random = np.random.default_rng(seed)
    costs = StepCosts.of(engine)
    found = []
    for _ in range(60):
        decodes = tuple(
            Work(i, 1, int(random.integers(20, 2000))) for i in range(random.integers(9))
        )
        chunk = Work(99, int(random.integers(8, 500)), int(random.integers(0, 1000)))
        chunks = () if decodes and random.random() < 0.5 else (chunk,)
        new = {work.request: 1 for work in (*decodes, *chunks)}
        step = StepRecord(start_s=0, cost_s=1, decodes=decodes, chunks=chunks, new_tokens=new)
        _, sampled, linear, attention = costs.parts([step])[0]
        cost_s = STEP_S + SAMPLED_S * sampled + LINEAR * linear + ATTENTION * attention
        found.append(replace(step, cost_s=cost_s))
    return found


def write_logs(folder: Path, names: Sequence[str]) -> None:
    """Writes tables, ``served.yaml`` that names them, and a step log of each name."""
    alone = folder / "alone"
    alone.mkdir()
    (folder / "served.yaml").write_text(SERVED.format(tables=alone))
    engine = resolve_engine(arguments(kernel_tables=tables(alone), calibration="none"))
    for seed, name in enumerate(names):
        write_step_log(folder / name, steps(engine, seed), {"vllm": "0.32.0"})
