"""An engine with more of one resource: its hardware, its limits, its memory or its host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.op_bounds import BOUNDS
from dynosim.hardware_models.timing.widened import widened_timer
from dynosim.sim.simulate import PlannedEngine, compile_timer

_HOST = ("host_step_s", "host_per_sequence_s")
_FRONTEND = (
    "frontend_request_s",
    "frontend_per_input_token_s",
    "frontend_per_output_token_s",
    "frontend_detokenise_s",
)


def wider_engines(
    planned: PlannedEngine, factor: float
) -> Iterator[tuple[str, str, PlannedEngine]]:
    """Yields each resource of an engine, what was done to it in words, and the engine then."""
    engine = planned.engine
    faster = f"{factor:g} × as fast"
    for bound, name in enumerate(BOUNDS):
        if name != "GPU links" or engine.args.gpus_per_replica > 1:
            yield name, faster, replace(planned, timer=widened_timer(engine, bound, factor))
    yield from _limits(planned, factor)
    blocks = planned.memory.num_gpu_blocks
    more = int(blocks * factor)
    memory = replace(planned.memory, num_gpu_blocks=more)
    yield "KV blocks", f"{blocks:,} → {more:,}", replace(planned, memory=memory)
    yield "host", faster, _with_engine(planned, _faster(engine, _HOST, factor))
    if any(getattr(engine.backend, name) for name in _FRONTEND):
        yield "API servers", faster, replace(planned, engine=_faster(engine, _FRONTEND, factor))


def _limits(planned: PlannedEngine, factor: float) -> Iterator[tuple[str, str, PlannedEngine]]:
    engine = planned.engine
    args = engine.args
    assert args.max_num_seqs is not None, "unresolved engine"
    assert args.max_num_batched_tokens is not None, "unresolved engine"
    seqs = int(args.max_num_seqs * factor)
    wider = replace(engine, args=replace(args, max_num_seqs=seqs))
    yield "batch slots", f"{args.max_num_seqs:,} → {seqs:,}", _with_engine(planned, wider)
    # SGLang takes whole KV pages.
    tokens = int(args.max_num_batched_tokens * factor) // engine.block_size * engine.block_size
    tokens = max(tokens, args.max_num_batched_tokens)
    wider = replace(engine, args=replace(args, max_num_batched_tokens=tokens))
    words = f"{args.max_num_batched_tokens:,} → {tokens:,}"
    yield "token budget", words, _with_engine(planned, wider)


def _faster(engine: ResolvedEngine, figures: tuple[str, ...], factor: float) -> ResolvedEngine:
    backend = engine.backend
    faster = {name: getattr(backend, name) / factor for name in figures}
    return replace(engine, backend=backend.with_figures(faster))


def _with_engine(planned: PlannedEngine, engine: ResolvedEngine) -> PlannedEngine:
    """Returns another engine in the same memory, timed anew."""
    return replace(planned, engine=engine, timer=compile_timer(engine))
