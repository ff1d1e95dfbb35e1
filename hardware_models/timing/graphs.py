"""Which steps replay a CUDA graph, and how many tokens they then run with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import IndexArray
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import ResolvedEngine


@dataclass(frozen=True)
class Graphs:
    """Captured token counts, ascending (none: every step is launched kernel by kernel).

    ``launch_s`` is what the CPU needs to launch a step that replays no graph: no such step is
    shorter. ``any_step``: graphs serve prefill and mixed steps too, not only decode-only ones.
    """

    sizes: tuple[int, ...]
    any_step: bool
    launch_s: float

    @property
    def largest(self) -> int:
        """Most tokens of a step that replays a graph; 0: none does."""
        return self.sizes[-1] if self.sizes else 0

    def run_tokens(self, length: int) -> IndexArray:
        """Returns how many tokens a step of 0 ... ``length`` - 1 runs with, shape (length,)."""
        tokens = np.arange(length)
        sizes = np.array((0, *self.sizes), dtype=np.intp)
        inside = tokens[: self.largest + 1]
        inside[:] = sizes[np.searchsorted(sizes, inside)]
        return tokens


def graphs_of(engine: ResolvedEngine) -> Graphs:
    """Returns the graphs that the engine captures at start.

    Sizes up to twice the sequences, at most the backend's limit and the token budget. UserError
    where eager execution is asked of a backend whose launch times are not known.
    """
    args, backend = engine.args, engine.backend
    launch_s = engine.model.num_layers * (backend.eager_layer_s or 0.0)
    if args.enforce_eager:
        if backend.eager_layer_s is None:
            raise UserError(
                f"no launch times of {backend.name} without CUDA graphs are known",
                where="enforce_eager",
            )
        return Graphs((), False, launch_s)
    budget = args.max_num_batched_tokens or backend.max_num_batched_tokens
    seqs = args.max_num_seqs or backend.max_num_seqs
    queries = engine.speculation.query_tokens if engine.speculation else 1
    most = min(2 * seqs * queries, backend.graph_max_tokens, budget)
    captured = sizes(backend.graph_steps, most)
    if queries > 1:
        captured = multiples(captured, queries, most)
    return Graphs(captured, backend.graphs_in_mixed_steps, launch_s)


def multiples(captured: tuple[int, ...], queries: int, most: int) -> tuple[int, ...]:
    """Returns sizes that hold whole verifications: rounded up to multiples of ``queries``
    (vLLM's adjust_cudagraph_sizes_for_spec_decode)."""
    rounded = sorted({-(-size // queries) * queries for size in captured})
    return tuple(size for size in rounded if size <= most)


def sizes(steps: tuple[tuple[int, int], ...], most: int) -> tuple[int, ...]:
    """Returns token counts up to ``most``: from the start of each (start, step) by its step."""
    ends = (*(start for start, _ in steps[1:]), most + 1)
    spans = zip(steps, ends, strict=True) if steps else ()
    return tuple(n for (start, step), end in spans for n in range(start, min(end, most + 1), step))
