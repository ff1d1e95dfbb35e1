"""What a step's time is bound by, part by part: the timer's own costs, told apart.

parts = StepParts.compile(engine)
parts.seconds(shapes)      # shape (7, steps); columns sum to the steps' seconds
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.graphs import graphs_of
from dynosim.hardware_models.timing.op_bounds import (
    BOUNDS,
    COMPUTE,
    LAUNCH,
    MEMORY,
    add_by_bound,
    seconds_by_bound,
)
from dynosim.hardware_models.timing.ops import Attention, decompose
from dynosim.hardware_models.timing.pricing import PricedEngine, launch_gaps_s, price

HOST, RANKS, DRAFTING = range(len(BOUNDS), len(BOUNDS) + 3)
PARTS = (*BOUNDS, "host", "slower ranks", "drafting")
"""What a step's time goes to, in words; what only some engines have comes last."""


@dataclass(frozen=True, kw_only=True)
class StepShapes:
    """Steps as columns: what each computed and how long it took.

    ``context_tokens`` is the sum over the decoding sequences, ``num_logits`` counts the sequences
    that sampled, and ``prefill_attention_s`` is the timer's own figure for the step's chunks.
    """

    seconds: FloatArray
    prefill_tokens: IntArray
    prefill_attention_s: FloatArray
    num_decode: IntArray
    num_logits: IntArray
    context_tokens: FloatArray


@dataclass(frozen=True, eq=False)
class StepParts:
    """Splits steps of one engine by what binds them.

    ``token_s`` and ``logit_s`` have shape (4, tokens + 1) and (4, logits + 1), rows as in
    :data:`~.op_bounds.BOUNDS`. Projections count as what binds them, attention as arithmetic or
    memory by its roofs. A step that waits for the host or for kernel launches longer than its
    kernels take is bound by that alone.

    Known limits: the parts of a step whose kernels do not just follow each other (mixed attention,
    pipeline stages) are stretched or shrunk to its time, all alike.
    """

    engine: ResolvedEngine
    priced: PricedEngine
    token_s: FloatArray
    logit_s: FloatArray

    @classmethod
    def compile(cls, engine: ResolvedEngine) -> StepParts:
        """Returns what splits the steps of ``engine``; UserError where an op has no price."""
        ranks, tp = engine.ranks_in_step, engine.args.tensor_parallel_size
        priced, ops = price(engine).balanced(ranks), decompose(engine)
        gpu, backend = engine.gpu, engine.backend.name
        length = len(priced.token_s) - 1
        token_ops = (*ops.tokens, *priced.attention.by_parts)
        tokens = seconds_by_bound(gpu, backend, token_ops, tp, length)
        if ops.joint:
            tokens = tokens + seconds_by_bound(gpu, backend, ops.joint, tp, length, ranks)
        tokens = tokens.copy()
        tokens[LAUNCH, 1:] += launch_gaps_s(engine, ops, token_ops)
        logits = seconds_by_bound(gpu, backend, ops.logits, tp, len(priced.logit_s) - 1)
        return cls(engine, priced, _scaled(tokens, priced.token_s), _scaled(logits, priced.logit_s))

    def seconds(self, shapes: StepShapes) -> FloatArray:
        """Returns the seconds of each part of each step, shape (7, steps)."""
        parts = np.zeros((len(PARTS), len(shapes.seconds)))
        kernels = self._kernels(shapes)
        backend = self.engine.backend
        host_s = backend.host_step_s + backend.host_per_sequence_s * shapes.num_logits
        gpu_s = kernels.sum(axis=0)
        if backend.asynchronous_scheduling:
            waits = host_s >= np.maximum(gpu_s, (1.0 - 1e-9) * shapes.seconds)
            parts[HOST] = np.where(waits, shapes.seconds, 0.0)
        else:
            parts[HOST] = np.minimum(host_s, shapes.seconds)
        left_s = shapes.seconds - parts[HOST]
        self._spread(parts, kernels, gpu_s, left_s)
        return parts

    def _spread(
        self, parts: FloatArray, kernels: FloatArray, gpu_s: FloatArray, left_s: FloatArray
    ) -> None:
        """Gives each bound its share of what is left of each step."""
        beyond = None
        if self.engine.ranks_in_step > 1:
            beyond = RANKS
        elif self.engine.speculation is not None:
            beyond = DRAFTING
        if beyond is not None:
            parts[beyond] = np.maximum(left_s - gpu_s, 0.0)
            left_s = left_s - parts[beyond]
        share = np.divide(left_s, gpu_s, out=np.zeros_like(gpu_s), where=gpu_s > 0.0)
        parts[: len(BOUNDS)] = kernels * share
        parts[LAUNCH] += np.where(gpu_s > 0.0, 0.0, left_s)

    def _kernels(self, shapes: StepShapes) -> FloatArray:
        """Returns seconds of the steps' kernels by what binds them, shape (4, steps)."""
        speculation = self.engine.speculation
        queries = speculation.query_tokens if speculation else 1
        decodes = shapes.num_decode * queries
        new_tokens = shapes.prefill_tokens + decodes
        is_mixed = shapes.prefill_tokens > 0
        most = self.token_s.shape[1]
        decode, mixed = graphs_of(self.engine)
        run = np.where(
            is_mixed, mixed.run_tokens(most)[new_tokens], decode.run_tokens(most)[new_tokens]
        )
        least_s = np.where(
            is_mixed, mixed.least_s(most)[new_tokens], decode.least_s(most)[new_tokens]
        )
        logits = shapes.num_logits + decodes - shapes.num_decode
        kernels = self.token_s[:, run] + self.logit_s[:, logits]
        self._add_prefill_attention(kernels, shapes)
        self._add_decode_attention(kernels, shapes)
        # The CPU launches one kernel after the other, and the GPU waits for it.
        is_late = least_s > kernels.sum(axis=0)
        return np.where(is_late, [[0.0], [0.0], [0.0], [1.0]] * least_s, kernels)

    def _add_prefill_attention(self, kernels: FloatArray, shapes: StepShapes) -> None:
        """Adds chunks: a chunk of few tokens waits for the keys of its prefix to be read."""
        gpu = self.engine.gpu
        ops = decompose(self.engine).attention
        per_pair_s = sum(op.count * roofline.prefill_s_per_pair(gpu, op.shape) for op in ops)
        reads = shapes.prefill_tokens * per_pair_s < _read_s_per_token(self.engine, ops)
        kernels[COMPUTE] += np.where(reads, 0.0, shapes.prefill_attention_s)
        kernels[MEMORY] += np.where(reads, shapes.prefill_attention_s, 0.0)
        launch_s = sum(n * curve.launch_s for n, curve in self.priced.attention.prefill)
        kernels[LAUNCH] += np.where(shapes.prefill_tokens > 0, launch_s, 0.0)

    def _add_decode_attention(self, kernels: FloatArray, shapes: StepShapes) -> None:
        ops = decompose(self.engine).attention
        gpu = self.engine.gpu
        taken_s = np.zeros(len(shapes.seconds))
        order = np.argsort(shapes.num_decode, kind="stable")
        ends = np.cumsum(np.bincount(shapes.num_decode))
        # Not np.unique, which would load numpy.ma for this.
        for size in (1 + np.flatnonzero(np.diff(ends))).tolist():
            row = self.priced.attention.decode[size]
            own = order[ends[size - 1] : ends[size]]
            taken_s[own] = np.interp(shapes.context_tokens[own], row.context_tokens, row.seconds)
        per_token_s = sum(
            op.count * op.shape.decode_flop_per_pair / roofline.peak_flop_s(gpu, op.shape.compute)
            for op in ops
        )
        compute_s = shapes.context_tokens * per_token_s
        memory_s = shapes.context_tokens * _read_s_per_token(self.engine, ops)
        add_by_bound(kernels, taken_s, compute_s, memory_s)


def _read_s_per_token(engine: ResolvedEngine, ops: tuple[Attention, ...]) -> float:
    """Returns seconds of reading one token of KV in all layers."""
    read_bytes = sum(op.count * op.shape.kv_bytes_per_token for op in ops)
    return read_bytes / engine.gpu.hbm_bandwidth_bytes_s


def _scaled(parts: FloatArray, total_s: FloatArray) -> FloatArray:
    """Returns the parts such that they sum to what the timer takes for all of them.

    That has small dips levelled, the skew of collectives and what fusions spare in it.
    """
    sums = parts.sum(axis=0)
    share: FloatArray = np.divide(total_s, sums, out=np.zeros_like(total_s), where=sums > 0.0)
    return parts * share
