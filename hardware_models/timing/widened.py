"""An engine on hardware that is better in one respect: what would more of it buy?"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.data_parallel import DataParallelTimer
from dynosim.hardware_models.timing.graphs import Graphs, graphs_of
from dynosim.hardware_models.timing.op_bounds import COMPUTE, LAUNCH, MEMORY, seconds_by_bound
from dynosim.hardware_models.timing.ops import ModelOps, TokenOp, decompose
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve
from dynosim.hardware_models.timing.pricing import (
    PricedAttention,
    PricedEngine,
    launch_gaps_s,
    price,
)
from dynosim.hardware_models.timing.step_timer import StepTimer


def widened_timer(
    engine: ResolvedEngine, bound: int, factor: float
) -> StepTimer | DataParallelTimer:
    """Returns the timer of ``engine`` where all that ``bound`` binds takes ``factor`` less time.

    ``bound`` is one of :data:`~.op_bounds.BOUNDS`. Each kernel that it binds at some size is sped
    up at that size; what binds next is not looked at, so that the gain is an upper bound for
    kernels near the ridge of the roofline. What decodes add to the attention of a batch with
    prompts stays as it is where one kernel runs both.
    """
    priced = _widened(engine, price(engine), decompose(engine), bound, factor)
    graphs = graphs_of(engine)
    if bound == LAUNCH:
        graphs = _launched(graphs[0], factor), _launched(graphs[1], factor)
    if engine.ranks_in_step > 1:
        return DataParallelTimer.of_priced(engine, priced, graphs)
    return StepTimer.of_priced(engine, priced, graphs)


def _widened(
    engine: ResolvedEngine, priced: PricedEngine, ops: ModelOps, bound: int, factor: float
) -> PricedEngine:
    backend = engine.backend

    def faster(ops: tuple[TokenOp, ...], total_s: FloatArray, gaps_s: float = 0.0) -> FloatArray:
        tp = engine.args.tensor_parallel_size
        parts = seconds_by_bound(engine.gpu, backend.name, ops, tp, len(total_s) - 1).copy()
        parts[LAUNCH, 1:] += gaps_s
        sums = parts.sum(axis=0)
        share: FloatArray = parts[bound] / sums.clip(min=1e-12)
        return total_s * (1.0 - share * (1.0 - 1.0 / factor))

    attention = priced.attention
    token_ops = (*ops.tokens, *attention.by_parts)
    joint_s = None if priced.joint_s is None else faster(ops.joint, priced.joint_s)
    less = {MEMORY: factor}.get(bound, 1.0)
    return replace(
        priced,
        token_s=faster(token_ops, priced.token_s, launch_gaps_s(engine, ops, token_ops)),
        logit_s=faster(ops.logits, priced.logit_s),
        joint_s=joint_s,
        attention=_attention(attention, bound, factor),
        prefill_state_s=priced.prefill_state_s / less,
    )


def _attention(attention: PricedAttention, bound: int, factor: float) -> PricedAttention:
    """Returns attention whose arithmetic (prefill), memory traffic (decode) or launch is faster."""
    prefill = tuple((layers, _curve(curve, bound, factor)) for layers, curve in attention.prefill)
    decode = attention.decode
    if bound == MEMORY:
        decode = decode.read_again(1.0 / factor)
    return replace(attention, prefill=prefill, decode=decode)


def _curve(curve: PrefillCurve, bound: int, factor: float) -> PrefillCurve:
    if bound == COMPUTE:
        return replace(
            curve,
            root_s=tuple(root / sqrt(factor) for root in curve.root_s),
            flop_s_per_pair=curve.flop_s_per_pair / factor,
            flop_s_per_token=curve.flop_s_per_token / factor,
        )
    if bound == MEMORY:
        return replace(curve, kv_s_per_token=curve.kv_s_per_token / factor)
    return replace(curve, launch_s=curve.launch_s / factor) if bound == LAUNCH else curve


def _launched(graphs: Graphs, factor: float) -> Graphs:
    return replace(graphs, launch_s=graphs.launch_s / factor)
