"""Prices ops from the measured tables of one (GPU, backend), for that GPU or for another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.timing import attention_table, roofline
from dynosim.hardware_models.timing.decode_grid import DecodeGrid
from dynosim.hardware_models.timing.gemm_sites import GemmSites
from dynosim.hardware_models.timing.interpolate import held_line, nearest_sites
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve
from dynosim.hardware_models.timing.quantise import timed_too_much_s
from dynosim.hardware_models.timing.shapes import AttentionShape, MoeBlock
from dynosim.hardware_models.timing.source import OpSource, Priced, Provenance
from dynosim.hardware_models.timing.tables import MissingTable, OpTable, load_table
from dynosim.hardware_models.timing.transfer import carried
from dynosim.hardware_models.timing.weight_format import WeightFormat, executed_format

EXPERT_LOADS = ("balanced", "power_law_1.01", "power_law_1.2")
"""Measured distributions of tokens over experts, by skew; the nearest stands in for one that a
table lacks."""

DIRECT_RING_SHARE = 0.5
"""A ring moves at the rate of its slowest link, which two GPUs show: rings of 4 and 8 RTX PRO 6000
keep 0.63 of a pair's rate. Measured ones below this share (0.25 and 0.11, of 4 and 8 L40S) come
from a host whose GPUs cannot reach each other directly, and the pair's rate is taken instead."""

REACH_OCTAVES = 4.0
"""Expert blocks further off than this in shape (Euclidean, six axes) do not stand in."""

MLA_BLOCK_GEOMETRY = (192, 128, 576)
"""qk, v and latent dimensions of DeepSeek-V3, the only model whose whole block was measured."""


@dataclass(frozen=True)
class TableSource:
    """Answers for ``gpu`` with what was measured on ``measured_on`` under ``backend``.

    Where the two GPUs differ, seconds are carried over as :func:`~.transfer.carried` says, by the
    ratio of their rooflines. ``home`` says that the engine in question runs this very backend.
    """

    gpu: Gpu
    measured_on: Gpu
    backend: str
    home: bool
    folder: str | None = None
    """Folder of tables, by default that of ``measured_on``."""

    def gemm_s(self, m: FloatArray, n: int, k: int, dtype: str) -> Priced[FloatArray]:
        form, near = self._forms(dtype)
        on = self.measured_on
        rows, sites = _first_dtype(self._folder, on, self.backend, near)
        seconds = sites.seconds_at(m, n, k, lambda x, p, q: roofline.gemm_s(on, x, p, q, near))
        if self.folder is None:
            measured = (rows.transferred_from or self.backend).split()[0]
            seconds = seconds - timed_too_much_s(self._folder, measured, near, m, k)
            seconds = np.maximum(seconds, roofline.gemm_s(on, m, n, k, near))
        if on != self.gpu:
            seconds = carried(
                seconds,
                roofline.gemm_s(on, m, n, k, near),
                lambda gpu: roofline.gemm_s(gpu, m, n, k, form),
                self.gpu,
                on,
            )
        return Priced(seconds, self._source(f"gemm {dtype}", rows))

    def moe_s(self, tokens: FloatArray, block: MoeBlock, dtype: str) -> Priced[FloatArray]:
        form, near = self._forms(dtype)
        if self.backend in near.foreign_to:
            raise MissingTable(f"{self.backend}: {dtype} experts were measured with other kernels")
        rows, found = _nearest_experts(self._folder, self.backend, near.moe_tables, block)
        on = self.measured_on
        seconds = held_line(
            tokens,
            rows.column("num_tokens").astype(np.float64),
            rows.latency_s,
            lambda x: roofline.moe_s(on, x, found, near),
        )
        if on != self.gpu or found != block:
            seconds = carried(
                seconds,
                roofline.moe_s(on, tokens, found, near),
                lambda gpu: roofline.moe_s(gpu, tokens, block, form),
                self.gpu,
                on,
            )
        return Priced(seconds, self._source(f"moe {dtype}", rows, _other_experts(found, block)))

    def all_reduce_s(self, message_bytes: FloatArray, num_gpus: int) -> Priced[FloatArray]:
        on = self.measured_on
        if on.joins_by_nvlink(num_gpus) != self.gpu.joins_by_nvlink(num_gpus):
            raise MissingTable(f"{on.key} has other links than {self.gpu.key}")
        rows, near = _all_reduce_rows(self._folder, self.backend, num_gpus)
        other = "" if near == num_gpus else f"{near} GPUs, scaled to {num_gpus}"
        launch = rows.latency_s.min()
        if not on.joins_by_nvlink(near):
            pair, pair_size = _all_reduce_rows(self._folder, self.backend, 2)
            if _bus_rate(rows, near) < DIRECT_RING_SHARE * _bus_rate(pair, pair_size):
                rows, near = pair, pair_size
                other = f"{near} GPUs, scaled to {num_gpus}: larger groups had no direct paths"
        near_roof = roofline.all_reduce_s(on, np.ones(1), near)[0]
        scale = float(roofline.all_reduce_s(self.gpu, np.ones(1), num_gpus)[0] / near_roof)
        seconds = held_line(
            message_bytes,
            rows.column("message_bytes").astype(np.float64),
            rows.latency_s,
            lambda x: x * near_roof,
        )
        seconds = launch + (seconds - rows.latency_s.min()) * scale
        seconds += roofline.network_latency_s(self.gpu, num_gpus)
        return Priced(seconds, self._source("all_reduce", rows, other))

    def prefill_attention(self, shape: AttentionShape) -> Priced[PrefillCurve]:
        family = "mla_context" if shape.kind == "mla" else "context_attention"
        rows, found = self._attention_rows(family, shape)
        curve = attention_table.prefill_curve(rows, found, shape, self.measured_on, self.gpu)
        return Priced(curve, self._source("prefill attention", rows, _other_shape(found, shape)))

    def decode_attention(self, shape: AttentionShape) -> Priced[DecodeGrid]:
        family = "mla_generation" if shape.kind == "mla" else "generation_attention"
        rows, found = self._attention_rows(family, shape)
        grid = attention_table.decode_grid(rows, found, shape, self.measured_on, self.gpu)
        return Priced(grid, self._source("decode attention", rows, _other_shape(found, shape)))

    def mla_block(
        self, shape: AttentionShape, dtype: str
    ) -> Priced[tuple[PrefillCurve, DecodeGrid]]:
        if (shape.qk_dim, shape.v_dim, shape.latent_dim) != MLA_BLOCK_GEOMETRY or not self.home:
            raise MissingTable(f"no whole-block latent attention for {shape.label}")
        form = executed_format(dtype, self.measured_on)
        near, on = form.gemm_tables[0] if form.gemm_tables else form.name, self.measured_on
        parts = []
        for family in ("mla_context_module", "mla_generation_module"):
            table = load_table(self._folder, self.backend, family).select(gemm_dtype=near)
            parts.append(attention_table.nearest_mla_rows(table, shape, self.backend))
        (prefill, found), (decode, found_too) = parts
        curve = attention_table.prefill_curve(prefill, found, shape, on, self.gpu)
        grid = attention_table.decode_grid(decode, found_too, shape, on, self.gpu)
        source = self._source(f"mla block {dtype}", decode, _other_shape(found, shape))
        return Priced((curve.as_block(), grid), source)

    def _forms(self, dtype: str) -> tuple[WeightFormat, WeightFormat]:
        """Returns how the GPU runs ``dtype`` and how the measured one does: with like kernels."""
        form, near = executed_format(dtype, self.gpu), executed_format(dtype, self.measured_on)
        if form != near:
            raise MissingTable(f"{self.measured_on.key} runs {dtype} as {near.name}")
        return form, near

    @property
    def _folder(self) -> str:
        if self.folder is not None:
            return self.folder
        if self.measured_on.tables is None:
            raise MissingTable(f"no measured tables for {self.measured_on.name}")
        return self.measured_on.tables

    def _attention_rows(self, family: str, shape: AttentionShape) -> tuple[OpTable, AttentionShape]:
        table = load_table(self._folder, self.backend, family)
        if shape.kind == "mla":
            return attention_table.nearest_mla_rows(table, shape, self.backend)
        return attention_table.nearest_rows(table, shape, self.backend)

    def _source(self, name: str, rows: OpTable, other_shape: str = "") -> OpSource:
        own = self.home and self.measured_on == self.gpu and not other_shape
        kind: Provenance = "measured" if own and rows.source == "measured" else "transferred"
        words = [f"{self.measured_on.key} {rows.backend} {rows.version}", other_shape]
        words += [f"from {rows.transferred_from}" if rows.transferred_from else ""]
        return OpSource(name, kind, ", ".join(w for w in words if w))


@lru_cache(maxsize=256)
def _gemm_sites(
    folder: str, gpu: Gpu, backend: str, dtype: str, weight_bytes: float
) -> tuple[OpTable, GemmSites]:
    rows = load_table(folder, backend, "gemm").select(gemm_dtype=dtype)
    sites = GemmSites.of(rows)
    if gpu.l2_cache_bytes is not None:
        sites = sites.cold(weight_bytes, gpu.l2_cache_bytes, gpu.hbm_bandwidth_bytes_s)
    return rows, sites


def _first_dtype(
    folder: str, gpu: Gpu, backend: str, form: WeightFormat
) -> tuple[OpTable, GemmSites]:
    reasons: list[str] = []
    for dtype in form.gemm_tables:
        try:
            return _gemm_sites(folder, gpu, backend, dtype, form.weight_bytes)
        except MissingTable as reason:
            reasons.append(str(reason))
    raise MissingTable("; ".join(reasons) or f"{gpu.key} {backend}: no kernel of that format")


@lru_cache(maxsize=256)
def _experts(folder: str, backend: str, dtype: str, load: str) -> tuple[OpTable, FloatArray, str]:
    """Returns rows of one dtype and of the load nearest to the one asked for, their distinct block
    shapes, and that load."""
    rows = load_table(folder, backend, "moe").select(moe_dtype=dtype)
    asked, loads = EXPERT_LOADS.index(load), [str(d) for d in rows.axis("distribution")]
    near = min(loads, key=lambda found: abs(EXPERT_LOADS.index(found) - asked))
    rows = rows.select(distribution=near)
    return rows, rows.distinct(*_BLOCK_KEYS), near


_BLOCK_KEYS = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")


@lru_cache(maxsize=512)
def _nearest_experts(
    folder: str, backend: str, dtypes: tuple[str, ...], block: MoeBlock
) -> tuple[OpTable, MoeBlock]:
    for dtype in dtypes:
        try:
            rows, blocks, load = _experts(folder, backend, dtype, block.load)
        except MissingTable:
            continue
        wanted = (block.hidden_size, block.inter_size, block.topk, block.num_experts)
        wanted_all = np.array([*wanted, block.moe_tp, block.moe_ep], dtype=np.float64)
        nearest, _ = nearest_sites(wanted_all, blocks, count=1)
        if np.linalg.norm(np.log2(blocks[nearest[0]] / wanted_all)) > REACH_OCTAVES:
            continue
        values = [int(v) for v in blocks[nearest[0]]]
        fields = dict(zip(_FIELDS, values, strict=True))
        found = MoeBlock(**fields, gated=block.gated, load=load)
        rows = rows.select(**dict(zip(_BLOCK_KEYS, values, strict=True)))
        return _believed(rows, found, folder, backend, dtype)
    raise MissingTable(
        f"{folder} {backend}: no like experts in {' or '.join(dtypes) or 'that format'}"
    )


def _believed(
    rows: OpTable, found: MoeBlock, folder: str, backend: str, dtype: str
) -> tuple[OpTable, MoeBlock]:
    """Returns the rows and their block; those of a skewed load for evenly loaded ones too slow.

    Once every expert is busy, no load is faster than an even one. Rows that say otherwise of
    experts spread over GPUs were measured with the tokens of all GPUs on one (DeepSeek-V3's with
    vLLM 0.24 and SGLang 0.5.14 in fp8_block and nvfp4: as slow over 32 GPUs as over 8).
    """
    if found.load != EXPERT_LOADS[0] or found.moe_ep == 1:
        return rows, found
    load = EXPERT_LOADS[1]
    shape = {key: getattr(found, field) for key, field in zip(_BLOCK_KEYS, _FIELDS, strict=True)}
    try:
        table = load_table(folder, backend, "moe").select(moe_dtype=dtype, distribution=load)
        skewed = table.select(**shape)
    except MissingTable:
        return rows, found
    # Rows are sorted by tokens.
    too_slow = rows.latency_s[-1] > skewed.latency_s[-1]
    return (skewed, replace(found, load=load)) if too_slow else (rows, found)


_FIELDS = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp", "moe_ep")


@lru_cache(maxsize=64)
def _all_reduce_rows(folder: str, backend: str, num_gpus: int) -> tuple[OpTable, int]:
    """Returns messages and seconds for the measured group nearest in size, and that size.

    The backend's own table goes before NCCL's: it was measured through the backend's dispatcher
    (custom kernel for small messages, NCCL or NVLS beyond), so it already is the path taken. Of
    its two launch modes the CUDA-graph one: outside graphs the queue hides the eager launch.
    """
    tables = []
    for load in (_custom_all_reduce, _nccl_all_reduce):
        try:
            tables.append(load(folder, backend))
        except MissingTable:
            continue
    if not tables:
        raise MissingTable(f"{folder} {backend}: no all-reduce")
    exact = [t for t in tables if num_gpus in np.asarray(t.axis("num_gpus"))]
    table = (exact or tables)[0]
    groups = np.asarray(table.axis("num_gpus"), dtype=np.int64)
    near = int(groups[np.argmin(np.abs(np.log2(groups / num_gpus)))])
    return table.select(num_gpus=near), near


def _bus_rate(rows: OpTable, num_gpus: int) -> float:
    """Returns bytes per second and GPU that a ring moved with the largest message."""
    largest = int(np.argmax(rows.column("message_bytes")))
    moved = 2.0 * (num_gpus - 1) / num_gpus * float(rows.column("message_bytes")[largest])
    return moved / float(rows.latency_s[largest])


def _custom_all_reduce(folder: str, backend: str) -> OpTable:
    table = load_table(folder, backend, "custom_allreduce")
    launches = [str(v) for v in table.axis("launch")]
    table = table.select(launch="graph" if "graph" in launches else launches[0])
    return table.select(allreduce_dtype=str(table.axis("allreduce_dtype")[0]))


def _nccl_all_reduce(folder: str, backend: str) -> OpTable:
    return load_table(folder, backend, "nccl").select(op="all_reduce", nccl_dtype="half")


def _other_experts(found: MoeBlock, block: MoeBlock) -> str:
    words = []
    if replace(found, load=block.load) != block:
        words.append(
            f"experts of hidden {found.hidden_size} x {found.inter_size}, top-{found.topk} of "
            f"{found.num_experts}, TP {found.moe_tp} EP {found.moe_ep}"
        )
    if found.load != block.load:
        words.append(f"experts loaded {found.load}")
    return ", ".join(words)


def _other_shape(found: AttentionShape, shape: AttentionShape) -> str:
    return "" if found == shape else found.label
