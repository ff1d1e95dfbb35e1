"""Attention over a paged KV cache: gathered block by block on a CPU, FlashAttention on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Tensor = Any


@dataclass(frozen=True, eq=False)
class Chunk:
    """A prompt's tokens ``start`` to ``stop`` of the batch.

    They attend to ``length`` tokens, which ``lengths`` (1,) says too, in the blocks of ``table``
    (1, blocks).
    """

    start: int
    stop: int
    table: Tensor
    lengths: Tensor
    length: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the tokens of a batch lie: first a token each of some sequences, then chunks.

    ``slots`` (tokens,) are the places of new keys and values in the cache; ``table`` (sequences,
    width) the blocks of the first kind, padded; ``lengths`` (sequences,) what they attend to. Both
    are int32. ``longest`` bounds the lengths.
    """

    slots: Tensor
    table: Tensor
    lengths: Tensor
    longest: int
    chunks: Sequence[Chunk] = ()


class Attention(Protocol):
    """Attends with ``queries`` (tokens, heads, head_dim) to one layer's cache.

    ``keys`` and ``values`` have the shape (blocks, block_size, KV heads, head_dim).
    """

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, layout: Layout) -> Tensor:
        """Returns (tokens, heads, head_dim)."""
        ...


class GatheredAttention:
    """Copies the blocks of each sequence together and attends, sequence by sequence."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._attend = torch.nn.functional.scaled_dot_product_attention

    def __str__(self) -> str:
        return "by sequence"

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, layout: Layout) -> Tensor:
        """Returns (tokens, heads, head_dim)."""
        kv_heads = keys.shape[2]
        parts = []
        for place, length in enumerate(layout.lengths.tolist()):
            k, v = (_gathered(pages, layout.table[place], length) for pages in (keys, values))
            # The query heads of a KV head are its queries: each sees all, as its one token does.
            grouped = queries[place].unflatten(0, (kv_heads, -1))
            parts.append(self._attend(grouped, k, v).flatten(0, 1).unsqueeze(0))
        for chunk in layout.chunks:
            k, v = (_gathered(pages, chunk.table[0], chunk.length) for pages in (keys, values))
            q = queries[chunk.start : chunk.stop].transpose(0, 1)
            parts.append(self._causal(q, k, v).transpose(0, 1))
        return self._torch.cat(parts)

    def _causal(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends from the last tokens: those of ``q``, (heads, tokens, head_dim)."""
        new, seen = q.shape[1], k.shape[1]
        whole = new == seen
        ones = self._torch.ones(new, seen, dtype=self._torch.bool, device=q.device)
        mask = None if whole else ones.tril(seen - new)
        batched = (part.unsqueeze(0) for part in (q, k, v))
        return self._attend(*batched, attn_mask=mask, is_causal=whole, enable_gqa=True)[0]


def _gathered(pages: Tensor, table: Tensor, length: int) -> Tensor:
    """Returns the first tokens in the blocks of a table, (KV heads, length, head_dim)."""
    blocks = -(-length // pages.shape[1])
    return pages[table[:blocks]].flatten(0, 1)[:length].transpose(0, 1)


class FlashAttention:
    """FlashAttention on a GPU; ``reads_pages`` where PyTorch's takes a block table.

    Where it does not, the blocks are copied together first, padded to the longest.
    """

    def __init__(self, torch: Any, *, reads_pages: bool) -> None:
        self._torch = torch
        self.reads_pages = reads_pages
        self._spans: dict[tuple[int, int], Tensor] = {}

    def __str__(self) -> str:
        return f"flash, {'block table' if self.reads_pages else 'blocks gathered'}"

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, layout: Layout) -> Tensor:
        """Returns (tokens, heads, head_dim)."""
        num = len(layout.lengths)
        parts = []
        if num:
            where = layout.table, layout.lengths, layout.longest
            parts.append(self._packed(queries[:num], keys, values, *where))
        for chunk in layout.chunks:
            where = chunk.table, chunk.lengths, chunk.length
            parts.append(self._packed(queries[chunk.start : chunk.stop], keys, values, *where))
        return parts[0] if len(parts) == 1 else self._torch.cat(parts)

    def _packed(
        self, q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor, longest: int
    ) -> Tensor:
        """Attends with equally many queries a sequence, causal from the lower right corner."""
        num, width = table.shape
        each, room = q.shape[0] // num, width * keys.shape[1]
        options = {"seqused_k": lengths}
        if self.reads_pages:
            options["block_table"] = table
        else:
            keys, values = (pages[table].flatten(0, 2) for pages in (keys, values))
        starts = (self._starts(num, size, q.device) for size in (each, room))
        return self._torch.ops.aten._flash_attention_forward(
            *(q, keys, values, *starts, each, longest, 0.0, True, False), **options
        )[0]

    def _starts(self, num: int, size: int, device: Any) -> Tensor:
        """Returns where each of ``num`` equal spans starts, and the last ends, (num + 1,) int32."""
        if (num, size) not in self._spans:
            ends = self._torch.arange(num + 1, dtype=self._torch.int32, device=device)
            self._spans[num, size] = ends * size
        return self._spans[num, size]


def attention_for(
    torch: Any, device: Any, block_size: int, heads: tuple[int, int, int]
) -> Attention:
    """Returns the attention of a device; ``heads`` are query heads, KV heads and head_dim.

    On a GPU it is the fastest that answers as gathering by sequence does: PyTorch's versions differ
    in whether FlashAttention takes a block table, and blocks of which size.
    """
    plain = GatheredAttention(torch)
    if device.type == "cpu":
        return plain
    fast = (FlashAttention(torch, reads_pages=pages) for pages in (True, False))
    agree = (attend for attend in fast if _agree(torch, device, block_size, heads, attend, plain))
    return next(agree, plain)


def _agree(
    torch: Any,
    device: Any,
    block_size: int,
    heads: tuple[int, int, int],
    one: Attention,
    other: Attention,
) -> bool:
    """Whether both answer alike, to the rounding of 16 bits, for two sequences and a chunk."""
    query_heads, kv_heads, head_dim = heads
    made = {"dtype": torch.bfloat16, "device": device}
    new, width, chunk = 5, 3, 3
    queries = torch.randn(new, query_heads, head_dim, **made)
    shape = (3 * width, block_size, kv_heads, head_dim)
    keys, values = torch.randn(shape, **made), torch.randn(shape, **made)
    table = torch.randperm(3 * width, device=device).to(torch.int32).view(3, width)
    seen = [block_size + 3, width * block_size, 2 * block_size + 1]
    lengths = torch.tensor(seen, dtype=torch.int32, device=device)
    last = Chunk(new - chunk, new, table[2:], lengths[2:], seen[2])
    layout = Layout(lengths, table[:2], lengths[:2], width * block_size, [last])
    try:
        answers = [attend(queries, keys, values, layout).float() for attend in (one, other)]
    except (RuntimeError, TypeError):
        # No block table in this version, or none for blocks of this size.
        return False
    return bool(torch.allclose(*answers, atol=2e-2, rtol=2e-2))
