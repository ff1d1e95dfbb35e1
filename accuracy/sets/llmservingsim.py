"""Real vLLM 0.19 runs with every request's timestamps, replayed with the runs' own op grids.

casys-kaist/LLMServingSim (MIT) replayed 300 ShareGPT requests at about 10 req/s into vLLM's engine
without a server before it, and measured the kernels of the same GPUs. Lengths and hashed prompts
stand in ``traces``, op grids in ``opgrids``. Latencies count from the engine's queue: its clock.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dynosim.accuracy.case import NO_FRONTEND, Case
from dynosim.accuracy.llmservingsim_grids import write_tables
from dynosim.accuracy.measured_rows import group_of
from dynosim.accuracy.measured_rows import rows as rows_of
from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.traces import read_trace

RUNS = "groundtruth/llmservingsim"
HARDWARE = {"RTX4090": "rtx_4090", "RTXPRO6000": "rtx_pro_6000_server"}
"""How folders of runs begin, and of grids -> GPU of the catalogue."""

PEER = "groundtruth/llmservingsim_predicted_vs_measured.csv.gz"
PREFIX_BLOCK_TOKENS = 16

SOURCES = (PEER, "traces/sharegpt-llama-3.1-8b-300-sps10.jsonl.gz")


def read(folder: Path) -> list[Case]:
    """Returns one case a run."""
    return [_case(folder, run) for run in runs(folder)]


def runs(folder: Path) -> list[str]:
    """Returns the names of the runs at hand: folders that begin with a known GPU."""
    found = sorted(path.parent.name for path in (folder / RUNS).glob("*/meta.json"))
    return [run for run in found if run.split("_", 1)[0] in HARDWARE]


def dropped(folder: Path) -> dict[str, int]:
    """Returns nothing: every run is a case."""
    return {}


def peers(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Returns row -> peer -> metric -> what LLMServingSim itself predicted for it."""
    names = {"TTFT": "ttft", "TPOT": "tpot", "Latency": "e2el"}
    found: dict[str, dict[str, dict[str, float]]] = {_row(run): {} for run in runs(folder)}
    for row in rows_of(folder / PEER):
        metric = f"{row.text('stat').lower()}_{names[row.text('metric')]}_ms"
        of_run = found.setdefault(_row(row.text("case")), {}).setdefault("LLMServingSim", {})
        of_run[metric] = row.number("llmservingsim_predicted_ms")
    return found


def _case(folder: Path, run: str) -> Case:
    requests = _requests(folder, run)
    meta = json.loads((folder / RUNS / run / "meta.json").read_text())
    hardware = run.split("_", 1)[0]
    deployment = _deployment(meta, HARDWARE[hardware])
    degree = deployment.tensor_parallel_size
    grid = folder / "opgrids" / hardware / meta["model"] / "bf16" / f"tp{degree}"
    if grid.is_dir():
        deployment = replace(deployment, kernel_tables=tables_of(grid, deployment))
    return Case(
        set="llmservingsim",
        group=group_of(deployment),
        row=_row(run),
        deployment=deployment,
        workload=_workload(folder, run, meta, requests),
        measured=latencies_ms(requests),
        overheads=NO_FRONTEND,
        tags={"load": "open loop"},
    )


def _row(run: str) -> str:
    return f"{run}/requests.jsonl.gz:1"


def _requests(folder: Path, run: str) -> dict[str, FloatArray]:
    """Returns the columns of a run, a request an element, in the order of the trace."""
    path = folder / RUNS / run / "requests.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    rows.sort(key=lambda row: int(row["request_id"].removeprefix("bench-")))
    return {key: np.array([row[key] for row in rows]) for key in rows[0] if key != "request_id"}


def _deployment(meta: Mapping[str, Any], gpu: str) -> Deployment:
    flags, cache_facts = meta["engine_kwargs"], meta.get("kv_cache", {})
    return Deployment(
        model=flags["model"],
        gpu=gpu,
        backend="vllm",
        backend_version=meta["vllm_version"],
        tensor_parallel_size=flags["tensor_parallel_size"],
        data_parallel_size=flags["data_parallel_size"],
        enable_expert_parallel=flags["enable_expert_parallel"],
        max_num_seqs=flags["max_num_seqs"],
        max_num_batched_tokens=flags["max_num_batched_tokens"],
        max_model_len=flags["max_model_len"],
        num_gpu_blocks_override=cache_facts.get("num_gpu_blocks"),
    )


def _workload(
    folder: Path, run: str, meta: Mapping[str, Any], requests: Mapping[str, FloatArray]
) -> Workload:
    """Returns the replayed trace with the arrivals that the engine saw."""
    trace = folder / "traces" / f"{Path(meta['dataset_path']).name}.gz"
    load = read_trace(trace, "mooncake", block_tokens=PREFIX_BLOCK_TOKENS)
    if not np.array_equal(load.input_tokens, requests["input_toks"]):
        raise ValueError(f"{run} did not replay {trace.name}")
    queued_s = requests["queued_ts"] - requests["queued_ts"].min()
    output_tokens = requests["output_toks"].astype(np.int64)
    return replace(load, name=run, arrival_s=queued_s, output_tokens=output_tokens).check()


def latencies_ms(requests: Mapping[str, FloatArray]) -> dict[str, float]:
    """Returns the measured statistics of a run, under the simulator's names."""
    ttft = requests["first_token_ts"] - requests["queued_ts"]
    e2el = requests["last_token_ts"] - requests["queued_ts"]
    tpot = (e2el - ttft) / (requests["output_toks"] - 1)
    metrics = {}
    for name, values in (("ttft", ttft), ("tpot", tpot), ("e2el", e2el)):
        metrics[f"mean_{name}_ms"] = float(values.mean()) * 1e3
        metrics[f"median_{name}_ms"] = float(np.median(values)) * 1e3
        for p in (90, 95, 99):
            metrics[f"p{p}_{name}_ms"] = float(np.percentile(values, p)) * 1e3
    duration_s = float(requests["last_token_ts"].max() - requests["queued_ts"].min())
    metrics["request_throughput"] = len(ttft) / duration_s
    return metrics


@cache
def tables_of(grid: Path, deployment: Deployment) -> str:
    """Returns a folder of the run's op grids as own tables, removed when the process ends."""
    made = TemporaryDirectory(prefix="dynosim-llmservingsim-")
    _folders.append(made)
    write_tables(grid, Path(made.name), resolve_engine(deployment))
    return made.name


_folders: list[TemporaryDirectory[str]] = []
