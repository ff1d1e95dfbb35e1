"""A grid narrowed to the shapes that one model launches, so that nothing is interpolated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.gpus import list_gpus
from dynosim.hardware_models.measure.grid import Grid, Product
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.timing.ops import (
    Attention,
    Elementwise,
    Gemm,
    ModelOps,
    TokenOp,
    decompose,
)

HEADS = "head_dim num_key_value_heads num_heads"


def for_model(grid: Grid, model: str, parallel: Sequence[int]) -> dict[str, list[Product]]:
    """Returns ``grid`` with the sites of ``model`` at these tensor-parallel sizes for its own.

    The running axes (tokens, batches, contexts, messages) stay. Raises UserError for an unknown
    model.
    """
    ops = [_ops(model, size) for size in parallel]
    sites: dict[str, list[Any]] = {
        "n k": _unique([g.n, g.k] for o in ops for g in _gemms(o)),
        HEADS: _unique(_heads(a) for o in ops for a in o.attention if a.shape.kind == "gqa"),
        "window_size": _unique(a.shape.window or 0 for o in ops for a in o.attention),
        "bytes_per_token": _unique(
            int(e.bytes_per_token)
            for o in ops
            for e in (*o.tokens, *o.logits)
            if isinstance(e, Elementwise)
        ),
        "num_gpus": [size for size in parallel if size > 1],
    }
    narrowed = {
        family: [{group: sites.get(group, v) for group, v in axes.items()} for axes in products]
        for family, products in grid.items()
    }
    return {f: p for f, p in narrowed.items() if all(all(axes.values()) for axes in p)}


def _ops(model: str, parallel: int) -> ModelOps:
    # Shapes do not depend on the GPU; an engine cannot be described without one.
    args = EngineArgs(model=model, gpu=list_gpus()[0], tensor_parallel_size=parallel)
    return decompose(resolve_engine(args))


def _gemms(ops: ModelOps) -> Iterable[Gemm]:
    around: tuple[TokenOp, ...] = tuple(g for a in ops.attention for g in a.block)
    return (op for op in (*ops.tokens, *ops.logits, *around) if isinstance(op, Gemm))


def _heads(attention: Attention) -> list[int]:
    shape = attention.shape
    return [shape.qk_dim, shape.kv_heads, shape.heads]


def _unique(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
