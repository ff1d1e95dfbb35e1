"""What the attention ops share: sequences of new tokens after cached ones, one layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dynosim.hardware_models.measure.case import Unsupported
from dynosim.hardware_models.measure.lab import Call, Calls, Lab

FLASH_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class Heads:
    """One layer's heads on one GPU."""

    heads: int
    kv_heads: int
    head_dim: int
    dtype: str
    window: int = 0

    @classmethod
    def of(cls, key: Mapping[str, Any]) -> Heads:
        """Returns the heads of a table's row; Unsupported for a cache of another dtype."""
        if key["attn_dtype"] != key["kv_cache_dtype"] or key["attn_dtype"] == "fp8":
            raise Unsupported("PyTorch has no attention over an 8-bit cache")
        return cls(
            key["num_heads"],
            key["num_key_value_heads"],
            key["head_dim"],
            key["attn_dtype"],
            key["window_size"],
        )


def attention(lab: Lab, heads: Heads, new: Sequence[int], seen: Sequence[int]) -> list[Calls]:
    """Returns the kernels for sequences of ``new`` tokens that attend to ``seen`` (theirs too).

    On a GPU one launch serves sequences of any lengths; on a CPU each run of equal ones has a call.
    """
    if lab.engine:
        return [lab.engine.attention(lab, heads, new, seen)]
    if lab.on_gpu:
        return [_flash(lab, heads, new, seen), *_cudnn(lab, heads, new, seen)]
    alike = [(*pair, len(list(run))) for pair, run in groupby(zip(new, seen, strict=True))]
    parts = [_padded(lab, heads, batch, n, s, "cpu").calls for n, s, batch in alike]
    return [Calls("cpu", [_in_turn(calls) for calls in zip(*parts, strict=False)])]


def _in_turn(calls: Sequence[Call]) -> Call:
    def run() -> None:
        for call in calls:
            call()

    return run


def _copies(lab: Lab, heads: Heads, new: Sequence[int], seen: Sequence[int]) -> int:
    """Returns how many caches to rotate; queries and output stay warm beside them."""
    cache = 2 * lab.bytes_of(heads.dtype, sum(seen), heads.kv_heads, heads.head_dim)
    return lab.copies(cache, 2 * lab.bytes_of(heads.dtype, sum(new), heads.heads, heads.head_dim))


def _flash(lab: Lab, heads: Heads, new: Sequence[int], seen: Sequence[int]) -> Calls:
    """FlashAttention over packed sequences, causal from the lower right corner."""
    torch = lab.torch
    if (lab.properties.major, lab.properties.minor) < FLASH_CAPABILITY:
        raise Unsupported("FlashAttention needs compute capability 8.0")
    copies = _copies(lab, heads, new, seen)
    q = lab.normal(heads.dtype, sum(new), heads.heads, heads.head_dim)
    starts_q, starts_k = (_starts(lab, lengths) for lengths in (new, seen))

    def call() -> Call:
        shape = (sum(seen), heads.kv_heads, heads.head_dim)
        k, v = lab.normal(heads.dtype, *shape), lab.normal(heads.dtype, *shape)
        left = {"window_size_left": heads.window - 1, "window_size_right": 0}
        window = left if heads.window else {}
        return lambda: torch.ops.aten._flash_attention_forward(
            *(q, k, v, starts_q, starts_k, max(new), max(seen), 0.0, True, False), **window
        )

    return Calls("flash", [call() for _ in range(copies)])


def _starts(lab: Lab, lengths: Sequence[int]) -> Any:
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return lab.torch.tensor(starts, dtype=lab.torch.int32, device=lab.device)


def _cudnn(lab: Lab, heads: Heads, new: Sequence[int], seen: Sequence[int]) -> list[Calls]:
    """cuDNN's fused attention where the sequences are equal and it knows the mask."""
    equal = len({*zip(new, seen, strict=True)}) == 1
    plain = equal and not heads.window and (new[0] == seen[0] or new[0] == 1)
    if not plain or lab.properties.major < 9:
        return []
    return [_padded(lab, heads, len(new), new[0], seen[0], "cudnn")]


def _padded(lab: Lab, heads: Heads, batch: int, new: int, seen: int, name: str) -> Calls:
    """``scaled_dot_product_attention`` over a batch of equal sequences."""
    torch = lab.torch
    copies = _copies(lab, heads, [new] * batch, [seen] * batch)
    q = lab.normal(heads.dtype, batch, heads.heads, new, heads.head_dim)
    mask = _mask(lab, heads, new, seen)
    options = {"attn_mask": mask, "is_causal": mask is None and new > 1, "enable_gqa": True}
    kernel = torch.nn.attention.SDPBackend.CUDNN_ATTENTION

    def call() -> Call:
        shape = (batch, heads.kv_heads, seen, heads.head_dim)
        k, v = lab.normal(heads.dtype, *shape), lab.normal(heads.dtype, *shape)
        attend = torch.nn.functional.scaled_dot_product_attention
        if name != "cudnn":
            return lambda: attend(q, k, v, **options)

        def fused() -> Any:
            with torch.nn.attention.sdpa_kernel(kernel):
                return attend(q, k, v, **options)

        return fused

    return Calls(name, [call() for _ in range(copies)])


def _mask(lab: Lab, heads: Heads, new: int, seen: int) -> Any:
    """Returns a lower-right causal mask where ``is_causal``, which is upper-left, is not it."""
    if not heads.window and (new == seen or new == 1):
        return None
    torch = lab.torch
    query = torch.arange(seen - new, seen, device=lab.device)[:, None]
    key = torch.arange(seen, device=lab.device)[None, :]
    mask = key <= query
    return mask & (key > query - heads.window) if heads.window else mask
