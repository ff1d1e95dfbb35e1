"""Which single change would make an engine start, found by trying."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dynosim.hardware_models.memory.plan import MemoryPlan, plan_without_hint
from dynosim.hardware_models.resolve import ResolvedEngine

_UTILIZATIONS = tuple(round(0.01 * percent, 2) for percent in range(50, 100))
_TENSOR_PARALLEL = (1, 2, 4, 8, 16)
_SEQUENCES = (512, 256, 128, 64, 32, 16)
_SHORTEST = 16
_MOST_SHOWN = 3


def fitting_changes(engine: ResolvedEngine, plan: MemoryPlan) -> str:
    """Returns up to three single changes of which each would fit; says so where none would.

    ``plan`` is the plan that does not. Changes of the least consequence come first.
    """
    found = [text for text in _changes(engine) if text][:_MOST_SHOWN]
    if found:
        return "would fit: " + ", or ".join(found)
    return "no single change of length, utilisation, sequences, KV dtype or tensor size would fit"


def _changes(engine: ResolvedEngine) -> Iterator[str]:
    yield _utilization(engine)
    yield _model_len(engine)
    yield _sequences(engine)
    yield _kv_dtype(engine)
    yield _tensor_parallel(engine)


def fits(engine: ResolvedEngine, **changes: Any) -> bool:
    """Whether the engine would start with some arguments changed."""
    return plan_without_hint(replace(engine, args=replace(engine.args, **changes))).feasible


def largest_model_len(engine: ResolvedEngine) -> int:
    """Returns the longest ``max_model_len`` that starts; 0 where none does."""
    longest = engine.args.max_model_len or engine.model.max_position_embeddings
    return _largest(_SHORTEST, longest, lambda length: fits(engine, max_model_len=length))


def _largest(low: int, high: int, works: Callable[[int], bool]) -> int:
    if not works(low):
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        if works(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _utilization(engine: ResolvedEngine) -> str:
    now = engine.args.gpu_memory_utilization or 0.0
    nearest = sorted(_UTILIZATIONS, key=lambda share: abs(share - now))
    for share in nearest:
        if fits(engine, gpu_memory_utilization=share):
            return f"--gpu-memory-utilization {share:g}"
    return ""


def _model_len(engine: ResolvedEngine) -> str:
    length = largest_model_len(engine)
    return f"--max-model-len {length}" if length else ""


def _sequences(engine: ResolvedEngine) -> str:
    now = engine.args.max_num_seqs or 1
    for count in _SEQUENCES:
        if count < now and fits(engine, max_num_seqs=count):
            return f"--max-num-seqs {count}"
    return ""


def _kv_dtype(engine: ResolvedEngine) -> str:
    if engine.args.kv_cache_dtype in ("auto", "bfloat16") and fits(engine, kv_cache_dtype="fp8"):
        return "--kv-cache-dtype fp8"
    return ""


def _tensor_parallel(engine: ResolvedEngine) -> str:
    now = engine.args.tensor_parallel_size
    for size in sorted(_TENSOR_PARALLEL, key=lambda size: (abs(size - now), size)):
        if size != now and fits(engine, tensor_parallel_size=size):
            return f"--tensor-parallel-size {size}"
    return ""
