"""Prices what no table holds: rooflines, at the efficiency of the nearest measured kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.decode_grid import FAR_BATCH, FAR_TOKENS, DecodeGrid
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve, pairs
from dynosim.hardware_models.timing.shapes import AttentionShape, MoeBlock
from dynosim.hardware_models.timing.source import OpSource, Priced, TimingSource
from dynosim.hardware_models.timing.tables import MissingTable
from dynosim.hardware_models.timing.unpacking import unpacked_gemm_s
from dynosim.hardware_models.timing.weight_format import executed_format

V = TypeVar("V")

KERNEL_LAUNCH_S = 5e-6
EXPERTS_LAUNCH_S = 20e-6
"""Least seconds of a kernel, and of the sort, two products and sum of routed experts, however few
bytes they read: at one token the shipped tables start at 13-42 us, median 22 us."""
GEMM_SHARE = 0.72
DECODE_SHARE = 0.86
PREFILL_SHARE = 0.53
"""Shares of the roofline where nothing at all was measured nearby: medians over the bfloat16 tables
of three backends on H100, H200, B200, A100 and L40S (aiconfigurator-core 0.12.0) of GEMMs with
m, n, k >= 4096 (0.51-0.91), decode attention over >= 200,000 tokens (0.58-0.90) and prefill
attention of >= 8,192 tokens (0.39-0.64)."""
LINK_SHARE = 0.75
"""Share of a link that a ring all-reduce is taken to reach where none was measured."""


@dataclass(frozen=True)
class RooflineSource:
    """Answers everything; ``measured`` is the chain of tables whose bfloat16 kernels it borrows.

    A format without a table costs what the same shape costs in bfloat16, times the ratio of the
    two rooflines: bytes of weights where memory binds, peak rate where arithmetic does. GEMMs
    that unpack their weights take what :mod:`.unpacking` says beyond that.
    """

    gpu: Gpu
    measured: TimingSource
    links: tuple[TimingSource, ...] = ()
    """GPUs of any generation that talk over the same kind of link, nearest first."""

    def gemm_s(self, m: FloatArray, n: int, k: int, dtype: str) -> Priced[FloatArray]:
        form = executed_format(dtype, self.gpu)
        seconds = unpacked_gemm_s if form.unpacks else roofline.gemm_s
        wanted = seconds(self.gpu, m, n, k, form)
        plain = roofline.gemm_s(self.gpu, m, n, k, executed_format("bfloat16", self.gpu))
        try:
            base = self.measured.gemm_s(m, n, k, "bfloat16")
        except MissingTable:
            return _bare(f"gemm {dtype}", wanted / GEMM_SHARE, GEMM_SHARE)
        lost = " x loss of unpacking" if form.unpacks else ""
        seconds_s = _scaled(base.value, wanted / plain, KERNEL_LAUNCH_S)
        return _borrowed(f"gemm {dtype}", base, seconds_s, lost)

    def moe_s(self, tokens: FloatArray, block: MoeBlock, dtype: str) -> Priced[FloatArray]:
        wanted = roofline.moe_s(self.gpu, tokens, block, executed_format(dtype, self.gpu))
        plain = roofline.moe_s(self.gpu, tokens, block, executed_format("bfloat16", self.gpu))
        try:
            base = self.measured.moe_s(tokens, block, "bfloat16")
        except MissingTable:
            return _bare(f"moe {dtype}", wanted / GEMM_SHARE, GEMM_SHARE)
        seconds_s = _scaled(base.value, wanted / plain, EXPERTS_LAUNCH_S)
        return _borrowed(f"moe {dtype}", base, seconds_s)

    def all_reduce_s(self, message_bytes: FloatArray, num_gpus: int) -> Priced[FloatArray]:
        # Bridges between pairs take half of the hops off PCIe: no measured ring is like that.
        is_bridged = self.gpu.nvlink_gpus is not None and num_gpus > self.gpu.nvlink_gpus
        for source in () if is_bridged else self.links:
            try:
                return source.all_reduce_s(message_bytes, num_gpus)
            except MissingTable:
                continue
        ring = roofline.all_reduce_s(self.gpu, message_bytes, num_gpus) / LINK_SHARE
        hops_s = roofline.POINT_TO_POINT_S + roofline.network_latency_s(self.gpu, num_gpus)
        return _bare("all_reduce", ring + hops_s, LINK_SHARE)

    def prefill_attention(self, shape: AttentionShape) -> Priced[PrefillCurve]:
        plain = replace(shape, kv_dtype="bfloat16")
        if plain != shape:
            try:
                base = self.measured.prefill_attention(plain)
                # Without a table the kernel is taken to compute in bfloat16 on unpacked keys.
                return _borrowed("prefill attention", base, base.value)
            except MissingTable:
                pass
        tokens = np.array([1.0, *2.0 ** np.arange(4, 18)])
        work = np.array([pairs(t, 0, shape.window) for t in tokens.tolist()])
        per_pair = roofline.prefill_s_per_pair(self.gpu, plain) / PREFILL_SHARE
        curve = PrefillCurve.of(tokens, KERNEL_LAUNCH_S + work * per_pair, window=shape.window)
        return _bare("prefill attention", curve, PREFILL_SHARE)

    def decode_attention(self, shape: AttentionShape) -> Priced[DecodeGrid]:
        plain = replace(shape, kv_dtype="bfloat16")
        if plain != shape:
            try:
                base = self.measured.decode_attention(plain)
            except MissingTable:
                pass
            else:
                share = shape.kv_bytes_per_token / plain.kv_bytes_per_token
                launch = base.value.seconds.min()
                seconds = launch + (base.value.seconds - launch) * share
                grid = DecodeGrid(base.value.batch, base.value.context, seconds)
                return _borrowed("decode attention", base, grid)
        return _bare("decode attention", self._bare_grid(shape), DECODE_SHARE)

    def mla_block(
        self, shape: AttentionShape, dtype: str
    ) -> Priced[tuple[PrefillCurve, DecodeGrid]]:
        raise MissingTable("whole attention blocks are priced part by part")

    def _bare_grid(self, shape: AttentionShape) -> DecodeGrid:
        batch = np.array([1.0, FAR_BATCH])
        context = np.array([1.0, FAR_TOKENS])
        read = roofline.decode_attention_s(
            self.gpu, batch[:, None], context[None, :], replace(shape, window=None)
        )
        grid = DecodeGrid(batch, context, KERNEL_LAUNCH_S + read / DECODE_SHARE)
        return grid.clamped(shape.window) if shape.window else grid


def _scaled(seconds: FloatArray, ratio: FloatArray, launch_s: float) -> FloatArray:
    """Returns the seconds times the ratio, which does not divide a launch."""
    return np.maximum(seconds * ratio, np.minimum(seconds, launch_s))


def _bare(name: str, value: V, share: float) -> Priced[V]:
    detail = f"no kernel measured: {share:.0%} of the roofline"
    return Priced(value, OpSource(name, "roofline", detail))


def _borrowed(name: str, base: Priced[Any], value: V, also: str = "") -> Priced[V]:
    detail = f"bfloat16 kernel x ratio of rooflines{also} ({base.source.detail})"
    return Priced(value, OpSource(name, "roofline", detail))
