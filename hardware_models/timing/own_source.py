"""Prices ops from tables that the user measured, where their shapes come close."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.timing import attention_table, roofline
from dynosim.hardware_models.timing.batch_grid import BatchGrid, MeasuredMix, PrefillGrid
from dynosim.hardware_models.timing.decode_grid import DecodeGrid
from dynosim.hardware_models.timing.interpolate import held_line, lower_envelope
from dynosim.hardware_models.timing.ops import Attention
from dynosim.hardware_models.timing.own_tables import OwnTables, own_table, own_tables
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve
from dynosim.hardware_models.timing.shapes import AttentionShape, MoeBlock
from dynosim.hardware_models.timing.source import OpSource, Priced
from dynosim.hardware_models.timing.table_source import TableSource
from dynosim.hardware_models.timing.tables import MissingTable, OpTable
from dynosim.hardware_models.timing.uneven_decode import UnevenDecode

REACH_OCTAVES = 0.5
"""Shapes further off than this (Euclidean, in octaves) are left to the shipped tables: a few shapes
measured for one model say little of another's."""


@dataclass(frozen=True)
class OwnSource:
    """Answers for ``gpu`` with the tables of ``own``, whatever ``backend`` the engine runs."""

    gpu: Gpu
    own: OwnTables
    backend: str

    @property
    def _tables(self) -> TableSource:
        home = self.own.backend == self.backend
        return TableSource(self.gpu, self.gpu, self.own.backend, home, self.own.folder)

    def gemm_s(self, m: FloatArray, n: int, k: int, dtype: str) -> Priced[FloatArray]:
        sites = own_table(self.own.folder, "gemm").distinct("n", "k")
        _refuse_far(sites, (n, k), f"product of {n} x {k}")
        return self._tables.gemm_s(m, n, k, dtype)

    def moe_s(self, tokens: FloatArray, block: MoeBlock, dtype: str) -> Priced[FloatArray]:
        keys = ("hidden_size", "inter_size", "num_experts", "moe_tp_size", "moe_ep_size")
        wanted = (block.hidden_size, block.inter_size, block.num_experts)
        sites = own_table(self.own.folder, "moe").distinct(*keys)
        _refuse_far(sites, (*wanted, block.moe_tp, block.moe_ep), f"experts {wanted}")
        return self._tables.moe_s(tokens, block, dtype)

    def all_reduce_s(self, message_bytes: FloatArray, num_gpus: int) -> Priced[FloatArray]:
        return self._tables.all_reduce_s(message_bytes, num_gpus)

    def prefill_attention(self, shape: AttentionShape) -> Priced[PrefillCurve]:
        try:
            grid = batch_grid(self.own.folder, shape)
        except MissingTable:
            self._refuse_far_heads("context_attention", shape)
            return self._tables.prefill_attention(shape)
        return Priced(PrefillGrid.over(grid), self._source("prefill attention"))

    def decode_attention(self, shape: AttentionShape) -> Priced[DecodeGrid]:
        try:
            grid = batch_grid(self.own.folder, shape)
        except MissingTable:
            self._refuse_far_heads("generation_attention", shape)
            return self._tables.decode_attention(shape)
        measured = lower_envelope(grid.decode_s)
        roof = attention_table.decode_roof(self.gpu, shape)
        decode = DecodeGrid.of(grid.decodes[1:], grid.context[1:], measured, roof).monotone()
        return Priced(decode, self._source("decode attention"))

    def mla_block(
        self, shape: AttentionShape, dtype: str
    ) -> Priced[tuple[PrefillCurve, DecodeGrid]]:
        return self._tables.mla_block(shape, dtype)

    def elementwise_s(self, tokens: FloatArray, bytes_per_token: float) -> Priced[FloatArray]:
        """Seconds of one memory-bound kernel; :class:`MissingTable` if no like one was measured."""
        table = own_table(self.own.folder, "elementwise")
        sites = table.distinct("bytes_per_token")
        _refuse_far(sites, (bytes_per_token,), f"kernel of {bytes_per_token:.0f} B a token")
        near = sites[np.argmin(np.abs(np.log2(sites[:, 0] / bytes_per_token))), 0]
        rows = table.select(bytes_per_token=int(near))
        seconds = held_line(
            tokens,
            rows.column("num_tokens").astype(np.float64),
            rows.latency_s,
            lambda x: roofline.elementwise_s(self.gpu, x * near),
        )
        return Priced(seconds, self._source("elementwise"))

    def mixed_attention(self, attention: tuple[Attention, ...]) -> Priced[MeasuredMix]:
        """All layers' mixed batches; :class:`MissingTable` unless measured and all layers alike."""
        shapes = {op.shape for op in attention}
        if len(shapes) != 1:
            raise MissingTable("layers of several attention shapes")
        grid = batch_grid(self.own.folder, shapes.pop())
        layers = sum(op.count for op in attention)
        return Priced(MeasuredMix(grid, layers), self._source("mixed attention"))

    def uneven_decode(self, attention: tuple[Attention, ...]) -> Priced[UnevenDecode]:
        """All layers' batches of unequal context; :class:`MissingTable` as for mixed ones."""
        shapes = {op.shape for op in attention}
        if len(shapes) != 1:
            raise MissingTable("layers of several attention shapes")
        shape = shapes.pop()
        rows = _of_shape(own_table(self.own.folder, "uneven_decode"), shape)
        layers = sum(op.count for op in attention)
        decode = self.decode_attention(shape).value
        return Priced(UnevenDecode.of(rows, decode, layers), self._source("uneven decode"))

    def _refuse_far_heads(self, family: str, shape: AttentionShape) -> None:
        if shape.kind == "gqa":
            keys = ("head_dim", "num_key_value_heads", "num_heads")
            sites = own_table(self.own.folder, family).distinct(*keys)
            _refuse_far(sites, (shape.qk_dim, shape.kv_heads, shape.heads), shape.label)

    def _source(self, name: str) -> OpSource:
        own = self.own
        home = own.backend == self.backend
        detail = f"{own.gpu} {own.backend} {own.version}, own tables ({own.source})"
        return OpSource(name, "measured" if home else "transferred", detail)


def own_source(gpu: Gpu, backend: str) -> OwnSource:
    """Returns the source of the GPU's own tables; ValueError where the user named none."""
    if gpu.own_tables is None:
        raise ValueError(f"{gpu.key} has no own tables")
    return OwnSource(gpu, own_tables(gpu.own_tables), backend)


@lru_cache(maxsize=64)
def batch_grid(folder: str, shape: AttentionShape) -> BatchGrid:
    """Returns the measured batches of exactly this shape; :class:`MissingTable` for any other."""
    if shape.kind != "gqa":
        raise MissingTable(f"{folder}: no batches of latent attention")
    return BatchGrid.of(_of_shape(own_table(folder, "batch_attention"), shape))


def _of_shape(table: OpTable, shape: AttentionShape) -> OpTable:
    rows = attention_table.of_cache(table, shape.kv_dtype).select(
        head_dim=shape.qk_dim,
        window_size=shape.window or 0,
        num_key_value_heads=shape.kv_heads,
        num_heads=shape.heads,
    )
    return rows.select(attn_dtype=str(rows.axis("attn_dtype")[0]))


def _refuse_far(sites: FloatArray, wanted: tuple[float, ...], words: str) -> None:
    distance = np.sqrt((np.log2(sites / np.array(wanted, dtype=np.float64)) ** 2).sum(axis=1))
    if distance.min() > REACH_OCTAVES:
        raise MissingTable(f"own tables: no {words}, nor one within {REACH_OCTAVES} octaves")
