"""Llama-3.1-8B on one H100 under rising constant rates (kubernetes-sigs/inference-perf, 2025-11).

The KubeCon demo's reports: stages of 60 s, 100 prompts of about 200 tokens in turn, 64 tokens out,
each server with other features. Where the client could not send as fast as asked, or the server
fell behind, a mean latency measures how long the stage lasted: those rows keep their token time and
throughput only.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from dynosim.accuracy.case import Case
from dynosim.accuracy.sets.repeated_prompts import RepeatedPrompts
from dynosim.sim.deployment import Deployment

FILE = "groundtruth/inference_perf_kubecon_h100.csv.gz"
SOURCES = (FILE,)

STAGE_S = 60.0
SHARED_TOKENS = 128
KEPT_UP = 0.98
"""A stage whose throughput is below this share of the asked rate was overloaded."""

LEFT_OUT = {"vllm+eagle": "speculative decoding", "vllm+v0_engine": "V0 engine"}


def read(folder: Path) -> list[Case]:
    """Returns a case a row, but for :data:`LEFT_OUT`."""
    return [_case(line, row) for line, row in _rows(folder) if row["config"] not in LEFT_OUT]


def dropped(folder: Path) -> dict[str, int]:
    """Returns reason -> rows that are no cases."""
    configs = (row["config"] for _, row in _rows(folder))
    return dict(Counter(LEFT_OUT[config] for config in configs if config in LEFT_OUT))


def _case(line: int, row: Mapping[str, str]) -> Case:
    prompts = RepeatedPrompts(
        groups=10,
        prompts_per_group=10,
        system_tokens=SHARED_TOKENS,
        prompt_tokens=int(row["isl"]),
        output_tokens=int(row["osl"]),
    )
    asked = float(row["requested_rate"])
    return Case(
        set="inference_perf",
        group="Llama-3.1-8B-Instruct tp1 h100_sxm vllm",
        row=f"{FILE}:{line}",
        deployment=_deployment(row),
        workload=prompts.at_constant_rate(asked, STAGE_S),
        measured=_measured(row, overloaded=float(row["req_s"]) < KEPT_UP * asked),
        tags={"load": "open loop", "config": row["config"]},
    )


def _deployment(row: Mapping[str, str]) -> Deployment:
    cached = row["config"] == "vllm+chunking_and_prefix_caching"
    return Deployment(
        model=row["model"],
        gpu="h100_sxm",
        backend="vllm",
        backend_version=row["backend_version"],
        max_model_len=512,
        max_num_seqs=int(float(row["max_batch"])),
        gpu_memory_utilization=0.9,
        enable_prefix_caching=cached,
        enable_chunked_prefill=cached,
    )


def _measured(row: Mapping[str, str], *, overloaded: bool) -> dict[str, float]:
    steady = {"mean_tpot_ms": float(row["tpot_ms"]), "request_throughput": float(row["req_s"])}
    if overloaded:
        return steady
    return steady | {
        "mean_ttft_ms": float(row["ttft_ms_mean"]),
        "median_ttft_ms": float(row["ttft_ms_p50"]),
        "p99_ttft_ms": float(row["ttft_ms_p99"]),
        "mean_e2el_ms": float(row["e2e_ms"]),
        "p99_e2el_ms": float(row["e2e_ms_p99"]),
    }


def _rows(folder: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields (line number, row), the first row on line 2."""
    with gzip.open(folder / FILE, "rt", newline="") as lines:
        yield from enumerate(csv.DictReader(lines), start=2)
