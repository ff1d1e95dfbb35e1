"""CUDA graphs of steps in which every sequence computes one token."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from dynosim.verification.torch_engine.attention import Layout
from dynosim.verification.torch_engine.decoder import Decoder

Tensor = Any


@dataclass(frozen=True, eq=False)
class Captured:
    """A graph, the tensors that it reads, and the one that it writes."""

    graph: Any
    tokens: Tensor
    positions: Tensor
    layout: Layout
    answer: Tensor


class DecodeGraphs:
    """One graph for every batch size of ``sizes`` and table width of ``widths`` (in blocks).

    A batch is padded to the next of both. What pads it reads and writes the block ``nowhere``.
    """

    def __init__(
        self,
        torch: Any,
        decoder: Decoder,
        pages: Tensor,
        sizes: list[int],
        widths: list[int],
    ) -> None:
        self._torch = torch
        self._decoder = decoder
        self._pages = pages
        self._nowhere = pages.shape[2] - 1
        self._sizes, self._widths = sorted(sizes), sorted(widths)
        self._pool = torch.cuda.graph_pool_handle()
        # The largest first: the others fit into its memory.
        self._graphs = {
            (size, width): self._capture(size, width)
            for size in reversed(self._sizes)
            for width in reversed(self._widths)
        }

    def fits(self, size: int, width: int) -> bool:
        """Whether there is a graph for a batch."""
        return size <= self._sizes[-1] and width <= self._widths[-1]

    def next_tokens(self, tokens: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        """Returns the next token of every sequence, as the decoder would."""
        size, width = layout.table.shape
        captured = self._graphs[
            self._sizes[bisect_left(self._sizes, size)],
            self._widths[bisect_left(self._widths, width)],
        ]
        own = captured.layout
        self._pad(captured)
        captured.tokens[:size].copy_(tokens)
        captured.positions[:size].copy_(positions)
        own.slots[:size].copy_(layout.slots)
        own.lengths[:size].copy_(layout.lengths)
        own.table[:size, :width].copy_(layout.table)
        captured.graph.replay()
        return captured.answer[:size]

    def _pad(self, captured: Captured) -> None:
        block_size = self._pages.shape[3]
        captured.layout.slots.fill_(self._nowhere * block_size)
        captured.layout.lengths.fill_(1)
        captured.layout.table.fill_(self._nowhere)

    def _capture(self, size: int, width: int) -> Captured:
        torch, device = self._torch, self._pages.device

        def whole(dtype: Any, *shape: int) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        lengths = whole(torch.int32, size)
        table, slots = whole(torch.int32, size, width), whole(torch.int64, size)
        longest = width * self._pages.shape[3]
        layout = Layout(slots, table, lengths, longest)
        tokens, positions = whole(torch.int64, size), whole(torch.int64, size)
        captured = Captured(torch.cuda.CUDAGraph(), tokens, positions, layout, None)
        self._pad(captured)
        every = torch.arange(size, device=device)

        def compute() -> Tensor:
            return self._decoder.next_tokens(tokens, positions, self._pages, layout, every)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            compute()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(captured.graph, pool=self._pool):
            answer = compute()
        return Captured(captured.graph, tokens, positions, layout, answer)
