"""Makes tensors of a batch and lets the decoder compute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynosim.verification.torch_engine.attention import Chunk, Layout
from dynosim.verification.torch_engine.decode_graphs import DecodeGraphs
from dynosim.verification.torch_engine.decoder import Decoder
from dynosim.verification.torch_engine.request import Request
from dynosim.verification.torch_engine.scheduler import Batch

Tensor = Any
Share = tuple[Request, int]


class TorchRunner:
    """Runs batches on one device, greedily.

    ``pages`` are those of :class:`~.decoder.Decoder`, one block more than the scheduler hands out.
    """

    def __init__(
        self, torch: Any, decoder: Decoder, pages: Tensor, graphs: DecodeGraphs | None = None
    ) -> None:
        self._torch = torch
        self._decoder = decoder
        self._pages = pages
        self._graphs = graphs
        self._block_size = int(pages.shape[3])

    def run(self, batch: Batch) -> dict[Request, int]:
        """Computes a batch; returns the next token of all whose tokens are computed now."""
        # One token is computed like a decode, whatever it belongs to.
        singles = [share for share in batch.work if share[1] == 1]
        work = singles + [share for share in batch.work if share[1] > 1]
        with self._torch.inference_mode():
            tokens = self._tensor(
                [t for r, n in work for t in r.tokens[r.computed : r.computed + n]]
            )
            positions = self._tensor(
                np.concatenate([np.arange(r.computed, r.computed + n) for r, n in work])
            )
            layout = self._layout(singles, work, positions)
            ends = np.cumsum([n for _, n in work]) - 1
            sampling = [place for place, (r, n) in enumerate(work) if r.missing == n]
            if not sampling:
                self._decoder.hidden(tokens, positions, self._pages, layout)
                return {}
            answer = self._answer(tokens, positions, layout, ends[sampling])
        return dict(zip((work[place][0] for place in sampling), answer, strict=True))

    def _answer(
        self, tokens: Tensor, positions: Tensor, layout: Layout, last: Any
    ) -> Sequence[int]:
        """Returns the next tokens behind the rows ``last``, on the host."""
        rows = self._tensor(last)
        graphs = self._graphs
        if graphs is not None and not layout.chunks and graphs.fits(*layout.table.shape):
            return list(graphs.next_tokens(tokens, positions, layout)[rows].tolist())
        answer = self._decoder.next_tokens(tokens, positions, self._pages, layout, rows)
        return list(answer.tolist())

    def _tensor(self, values: Any, dtype: Any = np.int64) -> Tensor:
        made = self._torch.from_numpy(np.asarray(values, dtype=dtype))
        return made.to(self._pages.device, non_blocking=True)

    def _layout(self, singles: list[Share], work: list[Share], positions: Tensor) -> Layout:
        lengths = np.array([r.computed + 1 for r, _ in singles], dtype=np.int32)
        longest = int(lengths.max(initial=0))
        table = np.zeros((len(singles), -(-longest // self._block_size)), dtype=np.int32)
        slots = [np.zeros(0, dtype=np.int64)]
        for place, (request, _) in enumerate(singles):
            blocks = np.frombuffer(request.blocks, dtype=np.int32)
            table[place, : len(blocks)] = blocks
            slots.append(self._slots(blocks, request.computed, 1))
        chunks = []
        start = len(singles)
        for request, tokens in work[start:]:
            blocks = np.frombuffer(request.blocks, dtype=np.int32).copy()
            slots.append(self._slots(blocks, request.computed, tokens))
            length = request.computed + tokens
            own = self._tensor([blocks], np.int32), self._tensor([length], np.int32)
            chunks.append(Chunk(start, start + tokens, *own, length))
            start += tokens
        return Layout(
            slots=self._tensor(np.concatenate(slots)),
            table=self._tensor(table, np.int32),
            lengths=self._tensor(lengths, np.int32),
            longest=longest,
            chunks=chunks,
        )

    def _slots(self, blocks: Any, first: int, tokens: int) -> Any:
        """Returns the places in the cache of a request's tokens from ``first`` on."""
        positions = np.arange(first, first + tokens)
        size = self._block_size
        return blocks[positions // size].astype(np.int64) * size + positions % size

    def facts(self) -> Mapping[str, float | str]:
        """Returns what computes. The block that no request gets counts, as vLLM counts its own."""
        torch, device = self._torch, self._pages.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        return {
            "kv_cache_tokens": int(self._pages.shape[2]) * self._block_size,
            "torch": str(torch.__version__),
            "device": name,
            "dtype": str(self._pages.dtype).removeprefix("torch."),
            "attention": str(self._decoder.attention),
            "decode_graphs": "captured" if self._graphs is not None else "none",
        }
