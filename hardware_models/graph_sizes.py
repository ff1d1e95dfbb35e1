"""The token counts for which an engine captures CUDA graphs."""

from __future__ import annotations

from dynosim.hardware_models.backends import Backend
from dynosim.hardware_models.engine_args import EngineArgs

_MANY_SHARDS = 4


def largest_graph(args: EngineArgs, backend: Backend) -> int:
    """Returns the most tokens of a decode-only step that replays a graph."""
    many = args.tensor_parallel_size >= _MANY_SHARDS
    if many and backend.graph_max_tokens_tp4 is not None:
        return backend.graph_max_tokens_tp4
    return backend.graph_max_tokens


def prefill_sizes(args: EngineArgs, backend: Backend) -> tuple[int, ...]:
    """Returns the sizes captured for prefill batches alone; none in a pipeline of stages."""
    if args.pipeline_parallel_size > 1 or args.enforce_eager:
        return ()
    budget = args.max_num_batched_tokens or backend.max_num_batched_tokens
    return sizes(backend.graph_mixed_steps, budget)


def sizes(steps: tuple[tuple[int, int], ...], most: int) -> tuple[int, ...]:
    """Returns token counts up to ``most``: from the start of each (start, step) by its step."""
    ends = (*(start for start, _ in steps[1:]), most + 1)
    spans = zip(steps, ends, strict=True) if steps else ()
    return tuple(n for (start, step), end in spans for n in range(start, min(end, most + 1), step))
