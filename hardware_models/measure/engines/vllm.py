"""vLLM's own kernels on a CPU: products by oneDNN with packed weights, attention over paged KV.

Those that vLLM 0.32.0 chooses for unquantised weights (``dispatch_cpu_unquantized_gemm``) and in
``CPUAttentionBackendImpl``, both 2026-11. On a GPU vLLM's products are cuBLAS's, which PyTorch's
are too, and its attention is FlashAttention's; these are measured without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynosim.hardware_models.measure.case import Unsupported
from dynosim.hardware_models.measure.lab import Call, Calls, Lab
from dynosim.hardware_models.measure.ops._attention import Heads

BLOCK_TOKENS = 32
"""Tokens of a KV block; the fast kernels want multiples of 32."""

PRIMITIVES = 32
"""Shapes whose compiled product a layer keeps, as vLLM asks for."""


def version() -> str:
    """Returns the installed version; ImportError where there is none."""
    from vllm.version import __version__

    return str(__version__)


def linear(lab: Lab, dtype: str, n: int, k: int, m: int) -> Calls:
    """Returns (m x k) times packed (k x n) weights, which are cold."""
    ops = _ops(lab)
    copies = lab.copies(2 * lab.bytes_of(dtype, n, k), lab.bytes_of(dtype, m, n + k))
    activations = lab.normal(dtype, m, k)

    def call() -> Call:
        handler = ops.create_onednn_mm(lab.normal(dtype, n, k).t(), PRIMITIVES)
        return lambda: ops.onednn_mm(handler, activations, None)

    return Calls("onednn", [call() for _ in range(copies)])


def attention(lab: Lab, heads: Heads, new: Sequence[int], seen: Sequence[int]) -> Calls:
    """Returns one launch over sequences of ``new`` tokens that attend to ``seen``, theirs too.

    The caches are cold; planning the launch, which all layers share, is not in it.
    """
    ops, torch = _ops(lab), lab.torch
    blocks = [-(-length // BLOCK_TOKENS) for length in seen]
    cache = (sum(blocks), heads.kv_heads, 2 * BLOCK_TOKENS, heads.head_dim)
    q = lab.normal(heads.dtype, sum(new), heads.heads, heads.head_dim)
    starts, lengths = _starts(torch, new), torch.tensor(seen, dtype=torch.int32)
    plan = ops.cpu_attn_get_scheduler_metadata(
        num_reqs=len(new),
        num_heads=heads.heads,
        num_kv_heads=heads.kv_heads,
        head_dim=heads.head_dim,
        seq_lens=lengths,
        dtype=lab.dtype(heads.dtype),
        query_start_loc=starts,
        causal=True,
        sliding_window_size=heads.window or -1,
        isa=_isa(lab, heads),
        enable_kv_split=True,
    )
    table = _block_table(torch, blocks)

    def call() -> Call:
        keys, values = lab.normal(heads.dtype, *cache).chunk(2, dim=2)
        return lambda: ops.cpu_attention_with_kv_cache(
            query=q,
            key_cache=keys,
            value_cache=values,
            output=torch.empty_like(q),
            query_start_loc=starts,
            seq_lens=lengths,
            scale=heads.head_dim**-0.5,
            causal=True,
            alibi_slopes=None,
            sliding_window=heads.window or -1,
            block_table=table,
            softcap=0,
            scheduler_metadata=plan,
            s_aux=None,
        )

    return Calls("paged", [call() for _ in range(lab.copies(lab.bytes_of(heads.dtype, *cache)))])


def _ops(lab: Lab) -> Any:
    if lab.on_gpu:
        raise Unsupported("vLLM's own kernels are measured on a CPU only")
    from vllm import _custom_ops

    return _custom_ops


def _isa(lab: Lab, heads: Heads) -> str:
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    return str(_get_attn_isa(lab.dtype(heads.dtype), BLOCK_TOKENS, heads.head_dim))


def _starts(torch: Any, new: Sequence[int]) -> Any:
    ends = torch.tensor(new, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return torch.cat([torch.zeros(1, dtype=torch.int32), ends])


def _block_table(torch: Any, blocks: Sequence[int]) -> Any:
    """Returns each sequence's blocks, in an order of chance, as a pool in use has them."""
    order = torch.randperm(sum(blocks), dtype=torch.int32)
    table = torch.zeros(len(blocks), max(blocks), dtype=torch.int32)
    first = 0
    for row, count in enumerate(blocks):
        table[row, :count] = order[first : first + count]
        first += count
    return table
