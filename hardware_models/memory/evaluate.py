"""Compares the memory plan with KV-cache sizes that real vLLM printed.

``python -m dynosim.hardware_models.memory.evaluate FOLDER`` prints a table; FOLDER holds
``vllm_kv_cache_logs.csv.gz``, whose rows of tier A are full start-up logs.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dynosim.hardware_models.engine_args import EngineArgs, KvCacheDtype
from dynosim.hardware_models.memory.plan import MemoryPlan, plan_memory
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine

LOGS = "vllm_kv_cache_logs.csv.gz"
_GIB = 2**30
_PARTS = re.compile(r"activation ([\d.]+)(?: GiB)?; non-torch ([\d.]+)")
_BUDGET_TOLERANCE_GIB = 0.2


@dataclass(frozen=True, kw_only=True)
class LoggedStart:
    """One start of real vLLM and what it printed; ``failed`` where it refused."""

    source: str
    engine: ResolvedEngine
    kv_cache_tokens: float | None
    weights_gib: float | None
    failed: str
    consistent: bool
    """Whether the row's own parts add up to its budget."""

    @property
    def group(self) -> str:
        """The model without its organisation, size and quantisation: rows of one group are kin."""
        name = self.engine.model.name.partition("/")[2].casefold()
        return re.split(r"[-_.]?(?:\d+(?:\.\d+)?[bm]\b|instruct|quantized|fp8)", name)[0]

    @property
    def is_held_out(self) -> bool:
        """Whether constants were fitted without this row; by a hash of the group's name."""
        return hashlib.sha256(self.group.encode()).digest()[0] % 2 == 1

    @property
    def signed_error(self) -> float | None:
        """Predicted over printed KV tokens, less one; None where nothing was printed."""
        if not self.kv_cache_tokens or self.failed:
            return None
        return plan_memory(self.engine).kv_cache_tokens / self.kv_cache_tokens - 1


def read_logs(folder: Path, tier: str = "A") -> list[LoggedStart]:
    """Returns the starts of one tier that name a model, GPU and version of the catalogue."""
    with gzip.open(folder / LOGS, "rt", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if f"[tier {tier}]" in row["notes"]]
    return [_start(row) for row in rows]


def _start(row: dict[str, str]) -> LoggedStart:
    engine = resolve_engine(_args(row))
    if "fp32" in row["weight_dtype"]:
        model = replace(engine.model, base_dtype="float32")
        wide = replace(
            model.quantization,
            linear="float32",
            experts="float32",
            linear_bits_per_weight=32.0,
            experts_bits_per_weight=32.0,
        )
        engine = replace(engine, model=replace(model, quantization=wide))
    failed = re.search(r"FAILED: (.*)", row["notes"])
    return LoggedStart(
        source=row["source"].rpartition("/")[2],
        engine=engine,
        kv_cache_tokens=_printed_tokens(row, engine),
        weights_gib=_number(row["model_weights_gib"]),
        failed=failed[1] if failed else "",
        consistent=_adds_up(row, engine),
    )


def _printed_tokens(row: dict[str, str], engine: ResolvedEngine) -> float | None:
    """The tokens printed; where a log gave the pool in bytes only, what so many bytes hold."""
    available = _number(row["available_kv_gib"])
    if row["reported_kv_tokens"] or available is None or available <= 0:
        return _number(row["reported_kv_tokens"])
    pinned = replace(engine.args, kv_cache_memory_bytes=int(available * _GIB))
    return float(plan_memory(replace(engine, args=pinned)).kv_cache_tokens)


def _number(text: str) -> float | None:
    return float(text) if text else None


def _args(row: dict[str, str]) -> EngineArgs:
    budget = re.search(r"max_num_batched_tokens=(\d+)", row["notes"])
    kv_dtype: KvCacheDtype = "fp8" if row["kv_dtype"].startswith("fp8") else "auto"
    return EngineArgs(
        model=row["model"],
        gpu="H100" if row["gpu"].startswith("H100") else row["gpu"],
        backend="vllm",
        backend_version=row["vllm_version"],
        tensor_parallel_size=int(row["tp"]),
        pipeline_parallel_size=int(row["pp"]),
        quantization="fp8" if "fp8-runtime" in row["weight_dtype"] else None,
        kv_cache_dtype=kv_dtype,
        max_model_len=int(row["max_model_len"]),
        max_num_batched_tokens=int(budget[1]) if budget else None,
        gpu_memory_utilization=float(row["gpu_memory_utilization"]),
        block_size=int(float(row["block_size"] or 16)),
    )


def _adds_up(row: dict[str, str], engine: ResolvedEngine) -> bool:
    parts = _PARTS.search(row["notes"])
    weights, available = _number(row["model_weights_gib"]), _number(row["available_kv_gib"])
    if parts is None or weights is None or available is None:
        return True
    budget = (engine.args.gpu_memory_utilization or 0) * engine.gpu.memory_bytes / _GIB
    total = weights + available + float(parts[1]) + float(parts[2])
    if engine.args.pipeline_parallel_size > 1:
        return True
    return abs(budget - total) < _BUDGET_TOLERANCE_GIB


def accuracy(starts: Iterable[LoggedStart]) -> dict[str, float]:
    """Returns n, median and 90th percentile of |error|, and the share within 10 %."""
    import numpy as np

    errors = [abs(e) for e in (start.signed_error for start in starts) if e is not None]
    if not errors:
        return {"n": 0.0}
    return {
        "n": float(len(errors)),
        "median": float(np.median(errors)),
        "p90": float(np.quantile(errors, 0.9)),
        "within_10_percent": float(np.mean(np.array(errors) <= 0.10)),
    }


def _table(starts: list[LoggedStart]) -> Iterable[str]:
    yield f"{'half':<9}{'error':>8}  {'printed':>10} {'predicted':>10}  start"
    for start in sorted(starts, key=lambda s: (s.is_held_out, s.group, s.source)):
        plan, error = plan_memory(start.engine), start.signed_error
        half = "held-out" if start.is_held_out else "fit"
        shown = "refused" if start.failed else f"{error:+.1%}" if error is not None else "-"
        verdict = "" if plan.feasible else f" [{plan.reason}; {plan.hint}]"
        odd = "" if start.consistent else " [row's own parts do not add up]"
        yield (
            f"{half:<9}{shown:>8}  {start.kv_cache_tokens or 0:>10.0f} "
            f"{plan.kv_cache_tokens:>10}  {_label(start, plan)}{verdict}{odd}"
        )
    for name, part in (
        ("all", starts),
        ("all consistent", [s for s in starts if s.consistent]),
        ("fit half", [s for s in starts if not s.is_held_out]),
        ("held-out half", [s for s in starts if s.is_held_out]),
    ):
        yield f"{name}: " + ", ".join(f"{k} {v:.4g}" for k, v in accuracy(part).items())


def _label(start: LoggedStart, plan: MemoryPlan) -> str:
    args = start.engine.args
    weights = f"{start.weights_gib:.2f}" if start.weights_gib else "?"
    return (
        f"{args.model} tp{args.tensor_parallel_size} pp{args.pipeline_parallel_size} "
        f"len {args.max_model_len} v{args.backend_version} "
        f"weights {weights}/{plan.weights_bytes / _GIB:.2f} "
        f"activation {plan.activation_bytes / _GIB:.2f}"
    )


def main() -> None:
    """Prints one line a start, then the accuracy by half."""
    for line in _table(read_logs(Path(sys.argv[1]))):
        print(line)


if __name__ == "__main__":
    main()
