"""CUDA graphs of steps in which every sequence computes one token."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dynosim.verification.torch_engine.attention import Layout
from dynosim.verification.torch_engine.decoder import Decoder

Tensor = Any
Compute = Callable[[], Tensor]
Capture = Callable[[Compute], tuple[Callable[[], object], Tensor]]
"""Returns what runs a computation again, and the tensor that its answer is then in."""


@dataclass(frozen=True, eq=False)
class Captured:
    """The tensors that a graph reads, what replays it, and the tensor that it writes."""

    tokens: Tensor
    positions: Tensor
    layout: Layout
    replay: Callable[[], object]
    answer: Tensor


class DecodeGraphs:
    """One graph for every batch size of ``sizes`` and table width (in blocks) of ``widths``.

    A batch is padded to the next of both. What pads it reads and writes the last block, which no
    request has. All are captured at once, so that no step has to wait for it.
    """

    def __init__(
        self,
        torch: Any,
        decoder: Decoder,
        pages: Tensor,
        sizes: Sequence[int],
        widths: Sequence[int],
        capture: Capture,
    ) -> None:
        self._torch = torch
        self._decoder = decoder
        self._pages = pages
        self._sizes, self._widths = sorted(sizes), sorted(widths)
        # The largest first: the others fit into its memory.
        self._graphs = {
            (size, width): self._captured(size, width, capture)
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
        padded = captured.layout
        self._pad(padded)
        captured.tokens[:size].copy_(tokens)
        captured.positions[:size].copy_(positions)
        padded.slots[:size].copy_(layout.slots)
        padded.lengths[:size].copy_(layout.lengths)
        padded.table[:size, :width].copy_(layout.table)
        captured.replay()
        return captured.answer[:size]

    def _pad(self, layout: Layout) -> None:
        last, block_size = self._pages.shape[2] - 1, self._pages.shape[3]
        layout.slots.fill_(last * block_size)
        layout.lengths.fill_(1)
        layout.table.fill_(last)

    def _captured(self, size: int, width: int, capture: Capture) -> Captured:
        torch, device = self._torch, self._pages.device
        tokens, positions, slots = torch.zeros((3, size), dtype=torch.int64, device=device)
        layout = Layout(
            slots=slots,
            table=torch.zeros((size, width), dtype=torch.int32, device=device),
            lengths=torch.zeros(size, dtype=torch.int32, device=device),
            longest=width * self._pages.shape[3],
        )
        self._pad(layout)
        every = torch.arange(size, device=device)

        def compute() -> Tensor:
            return self._decoder.next_tokens(tokens, positions, self._pages, layout, every)

        replay, answer = capture(compute)
        return Captured(tokens, positions, layout, replay, answer)


def cuda_capture(torch: Any) -> Capture:
    """Returns what captures computations into CUDA graphs of one memory pool."""
    pool = torch.cuda.graph_pool_handle()

    def capture(compute: Compute) -> tuple[Callable[[], object], Tensor]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # Libraries choose their kernels, and take their workspace, the first time.
            compute()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            answer = compute()
        return graph.replay, answer

    return capture
