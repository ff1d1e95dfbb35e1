"""How many kernels a step launches, next to one of a plain dense model.

Launch times of a layer (``layer_launch_s``, ``eager_layer_s``) are those of a dense one: norm,
projection of queries, keys and values, rotary embedding and cache write, attention, projection of
its output, norm, two products and an activation, and two sums over GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable

from dynosim.hardware_models.timing.exchange import Exchange
from dynosim.hardware_models.timing.ops import (
    Attention,
    Experts,
    Gemm,
    ModelOps,
    State,
    TokenOp,
)
from dynosim.hardware_models.timing.weight_format import weight_format

DENSE_KERNELS = 9
DENSE_SUMS = 2
EXPERT_KERNELS = 8
"""Sort and count tokens by expert, quantise, two products, activation, quantise, sum by token."""
LATENT_KERNELS = 6
"""Latent attention beside its projections: norms of both latents, rotary embedding, the products
that absorb the up-projections, attention."""
STATE_KERNELS = 4
"""Convolution, gates, state update, gated norm."""
EXCHANGE_KERNELS = 4


def dense_layers(kernels: int, tensor_parallel_size: int) -> float:
    """Returns how many dense layers launch that many kernels, beside the embedding and its sum."""
    is_cut = tensor_parallel_size > 1
    return (kernels - 1 - is_cut) / (DENSE_KERNELS + DENSE_SUMS * is_cut)


def num_in_graph(ops: ModelOps, tokens: Iterable[TokenOp]) -> int:
    """Returns the kernels between which there are gaps that no price covers: one per priced op.

    ``tokens`` are the ops over new tokens that are priced one by one.
    """
    return sum(op.count for op in (*tokens, *ops.joint, *ops.attention, *ops.states))


def num_eager(ops: ModelOps) -> int:
    """Returns the kernels that the CPU launches where no graph is replayed."""
    parts: tuple[TokenOp | Attention | State, ...] = (
        *ops.tokens,
        *ops.joint,
        *ops.attention,
        *ops.states,
    )
    return sum(part.count * _kernels(part) for part in parts)


def _kernels(op: TokenOp | Attention | State) -> int:
    if isinstance(op, Gemm):
        return 2 if _quantises(op.dtype) else 1
    if isinstance(op, Experts):
        return EXPERT_KERNELS
    if isinstance(op, Attention):
        latent = LATENT_KERNELS if op.shape.kind == "mla" else 1
        return latent + sum(_kernels(part) for part in op.block)
    if isinstance(op, State):
        return STATE_KERNELS
    return EXCHANGE_KERNELS if isinstance(op, Exchange) else 1


def _quantises(dtype: str) -> bool:
    form = weight_format(dtype)
    return bool(form.quantising) or form.name == "fp8_block"
