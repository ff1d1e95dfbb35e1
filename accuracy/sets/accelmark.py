"""AccelMark: vLLM in one process on GPUs from T4 to H200, with requests taken from ShareGPT.

Offline all requests are handed over at once (the concurrency in the file has no effect there),
online they come at random times; *interactive* sends one after the other. Of the lengths only the
means of the offline runs are known; answers are cut at a cap that many reach.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from dynosim.accuracy import measured_rows
from dynosim.accuracy.case import NO_FRONTEND, Case
from dynosim.accuracy.measured_rows import NoCase, Row, group_of, looked_up, room_for
from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.deployment import Deployment
from dynosim.sim.random_streams import stream
from dynosim.sim.workload.arrivals import paced_arrivals
from dynosim.sim.workload.columns import Workload

SOURCES = ("groundtruth/accelmark.csv.gz",)

GPUS = {
    "NVIDIA A100-SXM4-80GB": "a100_sxm",
    "NVIDIA GeForce RTX 5090": "rtx_5090",
    "NVIDIA H200": "h200_sxm",
    "Tesla T4": "t4",
}
LENGTHS = {
    "sharegpt_standard_v1": (265, 350, 512),
    "sharegpt_edge_v1": (100, 219, 256),
    "sharegpt_longctx_v1": (28641, 256, 256),
}
"""Mean prompt, mean answer and cap of each file of requests, from the offline rows' rates."""
MEASURED = {
    "offline": {"output_throughput": "output_tok_s"},
    "online": {
        "median_ttft_ms": "ttft_ms_p50",
        "p99_ttft_ms": "ttft_ms_p99",
        "median_tpot_ms": "tpot_ms",
        "p99_tpot_ms": "tpot_ms_p99",
    },
    "interactive": {"median_ttft_ms": "ttft_ms_p50", "median_tpot_ms": "tpot_ms"},
}
ASSUMED = (
    "exponential prompt lengths of the mean that offline rates imply",
    "a share of the answers reaches the cap, the others end anywhere before it",
    "max_model_len as long as the longest request",
)
OLDEST = "0.9.0"
SERIAL_REQUESTS = 50


def read(folder: Path) -> list[Case]:
    """Returns the set's cases."""
    return measured_rows.cases(folder / SOURCES[0], case_of)


def dropped(folder: Path) -> dict[str, int]:
    """Returns reason -> number of rows left out."""
    return measured_rows.dropped(folder / SOURCES[0], case_of)


def case_of(row: Row) -> Case:
    """Returns the case of one row."""
    scenario = row.text("scenario")
    if scenario not in MEASURED:
        raise NoCase(f"scenario {scenario}")
    if row.text("backend") != "vllm":
        raise NoCase(f"no card for the backend {row.text('backend')}")
    version = row.text("backend_version").split("+")[0]
    is_known = re.fullmatch(r"0\.(9|1\d|2\d)\.\d+", version) is not None
    load = _workload(row, scenario)
    deployment = Deployment(
        model=row.text("model"),
        gpu=looked_up(GPUS, row.text("gpu"), "GPU"),
        backend="vllm",
        backend_version=version if is_known else OLDEST,
        tensor_parallel_size=row.integer("tp"),
        max_model_len=room_for(row.text("model"), _longest(load)),
    )
    assumed = ASSUMED if is_known else (*ASSUMED, f"vLLM {OLDEST}, the oldest known, for {version}")
    return Case(
        set="accelmark",
        group=group_of(deployment),
        row=row.where,
        deployment=deployment,
        workload=load,
        measured=row.measured(MEASURED[scenario]),
        overheads=NO_FRONTEND,
        assumed=assumed,
        tags={"mode": scenario, "suite": row.text("suite")},
    )


def _workload(row: Row, scenario: str) -> Workload:
    count = re.search(r"(\d+) requests", row.text("load_mode"))
    n = int(count[1]) if count else SERIAL_REQUESTS
    mean_in, mean_out, cap = LENGTHS[row.text("dataset")]
    rate = row.number("request_rate") if scenario == "online" else float("inf")
    return Workload(
        name=row.text("dataset"),
        arrival_s=paced_arrivals(n, rate, 1.0, stream(0, "arrivals")),
        input_tokens=_shuffled(exponential_lengths(n, mean_in), "input"),
        output_tokens=_shuffled(capped_lengths(n, mean_out, cap), "output"),
        prefix_ids=np.zeros(0, dtype=np.int64),
        prefix_offsets=np.zeros(n + 1, dtype=np.int64),
        max_concurrency=1 if scenario == "interactive" else None,
    ).check()


def _longest(load: Workload) -> int:
    return int((load.input_tokens + load.output_tokens).max())


def exponential_lengths(n: int, mean: float) -> IntArray:
    """Returns the ``n`` middle quantiles of an exponential distribution, rounded, at least 1."""
    middles = (np.arange(n) + 0.5) / n
    return np.maximum(1, np.rint(-mean * np.log1p(-middles))).astype(np.int64)


def capped_lengths(n: int, mean: float, cap: int) -> IntArray:
    """Returns ``n`` lengths of which a share is ``cap`` and the rest uniform below, with a mean."""
    at_cap = round(n * max(0.0, 2.0 * mean / cap - 1.0))
    below = (np.arange(n - at_cap) + 0.5) / max(1, n - at_cap) * min(cap, 2.0 * mean)
    lengths = np.concatenate((np.full(at_cap, cap), np.maximum(1, np.rint(below))))
    return lengths.astype(np.int64)


def _shuffled(lengths: IntArray, purpose: str) -> IntArray:
    return stream(0, f"order of {purpose}").permutation(lengths)
