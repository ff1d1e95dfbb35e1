"""Predicted starts against 59 that real vLLM logged.

``python -m dynosim.accuracy.startups FOLDER`` prints the errors; FOLDER holds
``vllm_startup_times_h100_v0.19.csv.gz``. What was downloaded while the model loaded is left out of
the measured time: it depends on a network that no log names.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dynosim.accuracy.halves import Half, half_of
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.startup.options import StartupOptions
from dynosim.hardware_models.startup.plan import plan_startup

LOGS = "vllm_startup_times_h100_v0.19.csv.gz"
_DOWNLOAD_S = 5.0
"""Model loading beyond reading weights that takes longer than this was a download."""
_CACHED_COMPILE_S = 4.0
_MODEL = re.compile(r"[-_.]?(?:\d+(?:\.\d+)?[bm]\b|instruct|quantized|fp8)")


@dataclass(frozen=True, kw_only=True)
class LoggedStartup:
    """One start: seconds by stage as measured and as predicted, both without downloads."""

    model: str
    half: Half
    is_first_read: bool
    measured_s: dict[str, float]
    predicted_s: dict[str, float]

    def error(self, stage: str = "total") -> float:
        """Predicted over measured, less one."""
        return self.predicted_s[stage] / self.measured_s[stage] - 1.0


def read_startups(folder: Path) -> list[LoggedStartup]:
    """Returns the starts of the logs, each with its prediction."""
    with gzip.open(folder / LOGS, "rt", newline="", encoding="utf-8") as file:
        return [_startup(row) for row in csv.DictReader(file)]


def _startup(row: dict[str, str]) -> LoggedStartup:
    read_s, compile_s = float(row["weights_read_s"]), float(row["torch_compile_s"])
    load_s, total_s = float(row["model_load_s"]), float(row["total_start_s"])
    around_s = load_s - read_s
    if around_s > _DOWNLOAD_S:
        total_s -= around_s
    engine = resolve_engine(
        EngineArgs(
            model=row["model"],
            gpu="H100",
            backend_version=row["vllm_version"],
            tensor_parallel_size=int(row["tp"]),
            pipeline_parallel_size=int(row["pp"]),
            max_model_len=int(row["max_model_len"]),
            quantization="fp8" if row["quantization"] == "fp8" else None,
        )
    )
    options = StartupOptions(startup_compile_cache=compile_s < _CACHED_COMPILE_S)
    plan = plan_startup(engine, plan_memory(engine), options)
    predicted_s = {stage.name.split(" (")[0]: plan.stage_s(stage) for stage in plan.stages}
    predicted_s["total"] = plan.alone_s
    rate = float(row["weights_gib_per_rank"]) / read_s * int(row["tp"]) * int(row["pp"])
    return LoggedStartup(
        model=row["model"],
        half=half_of(_MODEL.split(row["model"].partition("/")[2].casefold())[0]),
        is_first_read=0.9 <= rate <= 1.6,
        measured_s={
            "process start": total_s
            - float(row["init_engine_s"])
            - (read_s if around_s > _DOWNLOAD_S else load_s),
            "weights": read_s,
            "compile": compile_s,
            "CUDA graphs": float(row["cuda_graph_capture_s"]),
            "total": total_s,
        },
        predicted_s=predicted_s,
    )


def errors(starts: Iterable[LoggedStartup], stage: str = "total") -> tuple[int, float, float]:
    """Returns how many starts, and the median and 90th percentile of their absolute errors."""
    found = np.abs([start.error(stage) for start in starts])
    return len(found), float(np.median(found)), float(np.quantile(found, 0.9))


def main(folder: str) -> None:
    """Prints errors by half, stage and whether weights were read for the first time."""
    starts = read_startups(Path(folder))
    for half in ("fit", "held_out"):
        own = [start for start in starts if start.half == half]
        for stage in ("total", "process start", "compile", "CUDA graphs", "weights"):
            count, median, p90 = errors(own, stage)
            print(f"{half:9} {stage:14} n={count:2} median {median:.0%} p90 {p90:.0%}")
        first = [start for start in own if start.is_first_read]
        count, median, p90 = errors(first)
        print(f"{half:9} total, weights not cached: n={count:2} median {median:.0%} p90 {p90:.0%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
