"""Which steps replay a CUDA graph, and how many tokens they then run with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IndexArray
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.graph_sizes import largest_graph, prefill_sizes, sizes
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.launches import dense_layers, num_eager
from dynosim.hardware_models.timing.ops import decompose


@dataclass(frozen=True)
class Graphs:
    """Captured token counts of one kind of steps, ascending (none: no such step replays a graph).

    ``launch_s`` is what the CPU needs to launch a step that replays no graph: no such step is
    shorter. Where not ``is_padded``, only steps of exactly a captured size replay one.
    """

    sizes: tuple[int, ...]
    launch_s: float
    is_padded: bool = True

    @property
    def largest(self) -> int:
        """Most tokens of a step that replays a graph; 0: none does."""
        return self.sizes[-1] if self.sizes else 0

    def run_tokens(self, length: int) -> IndexArray:
        """Returns how many tokens a step of 0 ... ``length`` - 1 runs with, shape (length,)."""
        tokens = np.arange(length)
        if self.is_padded:
            sizes = np.array((0, *self.sizes), dtype=np.intp)
            inside = tokens[: self.largest + 1]
            inside[:] = sizes[np.searchsorted(sizes, inside)]
        return tokens

    def least_s(self, length: int) -> FloatArray:
        """Returns the least seconds of a step of 0 ... ``length`` - 1 tokens, shape (length,)."""
        least = np.full(length, self.launch_s)
        if self.is_padded:
            least[: self.largest + 1] = 0.0
        else:
            least[[0, *(size for size in self.sizes if size < length)]] = 0.0
        return least


def graphs_of(engine: ResolvedEngine) -> tuple[Graphs, Graphs]:
    """Returns the graphs captured at start for decode-only steps, and for those with prefill.

    Sizes up to twice the sequences, at most the backend's limit and the token budget. UserError
    where eager execution is asked of a backend whose launch times are not known, or graphs without
    padding of one that always pads.
    """
    args, backend = engine.args, engine.backend
    layers = dense_layers(num_eager(decompose(engine)), args.tensor_parallel_size)
    launch_s = layers * (backend.eager_layer_s or 0.0)
    if args.enforce_eager:
        if backend.eager_layer_s is None:
            raise UserError(
                f"no launch times of {backend.name} without CUDA graphs are known",
                where="enforce_eager",
            )
        return Graphs((), launch_s), Graphs((), launch_s)
    decode = Graphs(_decode_sizes(engine), launch_s, bool(args.cuda_graph_padding))
    # Ranks that share experts capture no prefill batches of their own (SGLang 0.5.14).
    is_apart = bool(backend.graph_mixed_steps)
    if not backend.graphs_in_mixed_steps or (is_apart and engine.ranks_in_step > 1):
        return decode, Graphs((), launch_s)
    if is_apart:
        return decode, Graphs(prefill_sizes(args, backend), launch_s)
    return decode, decode


def _decode_sizes(engine: ResolvedEngine) -> tuple[int, ...]:
    args, backend = engine.args, engine.backend
    budget = args.max_num_batched_tokens or backend.max_num_batched_tokens
    seqs = args.max_num_seqs or backend.max_num_seqs
    queries = engine.speculation.query_tokens if engine.speculation else 1
    most = min(2 * seqs * queries, largest_graph(args, backend), budget)
    steps = backend.graph_steps
    if not args.cuda_graph_padding:
        steps = backend.graph_steps_exact
        if backend.graph_steps and not steps:
            raise UserError(
                f"{backend.name} always pads to the next graph",
                where="cuda_graph_padding",
                hint="sglang and trtllm have this option",
            )
    captured = sizes(steps, most)
    return multiples(captured, queries, most) if queries > 1 else captured


def multiples(captured: tuple[int, ...], queries: int, most: int) -> tuple[int, ...]:
    """Returns sizes that hold whole verifications: rounded up to multiples of ``queries``
    (vLLM's adjust_cudagraph_sizes_for_spec_decode)."""
    rounded = sorted({-(-size // queries) * queries for size in captured})
    return tuple(size for size in rounded if size <= most)
