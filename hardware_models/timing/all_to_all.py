"""Seconds of exchanging tokens between data-parallel ranks and experts, from measured kernels.

All-gather and reduce-scatter are NCCL's; DeepEP and NVLink kernels were measured through the
backends. What a table lacks is scaled from the nearest measured group by what the links have to
carry; where nothing was measured, links are taken to be used as :data:`LINK_SHARE` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.data_parallel import has_multi_node_nvlink
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.chain import TABLE_BACKENDS, measured_gpus
from dynosim.hardware_models.timing.exchange import GATHERED, Exchange
from dynosim.hardware_models.timing.interpolate import held_line, nearest_sites
from dynosim.hardware_models.timing.roofline_source import LINK_SHARE
from dynosim.hardware_models.timing.source import OpSource, Priced, Provenance
from dynosim.hardware_models.timing.tables import MissingTable, OpTable, load_table

SENT_BYTES = 2.0
"""Bytes of an activation on its way: bfloat16, as all-gather and combination send it."""

_MEASURED_AS = {
    "deepep_high_throughput": "deepep_ht",
    "deepep_low_latency": "deepep_ll",
    "nvlink_one_sided": "nvlink_one_sided",
    "nvlink_two_sided": "nvlink_two_sided",
}
_PHASES = ("prepare", "dispatch", "combine")
_SHAPE = ("hidden_size", "topk", "num_experts", "ep_size")


def exchange_s(
    gpu: Gpu, backend: str, exchange: Exchange, tokens: FloatArray
) -> Priced[FloatArray]:
    """Returns seconds of one layer's dispatch and combination, shape (len(tokens),).

    ``tokens`` counts those of all ranks, spread evenly over ``exchange.gpus``.
    """
    if exchange.kernel == GATHERED:
        return _gathered_s(gpu, exchange, tokens)
    per_gpu = np.maximum(tokens / exchange.gpus, 1.0)
    for measured_on, owner in _owners(gpu, backend):
        try:
            return _kernels_s(gpu, measured_on, owner, exchange, per_gpu, home=owner == backend)
        except MissingTable:
            continue
    sent = per_gpu * exchange.topk * exchange.hidden_size * SENT_BYTES
    seconds = 2.0 * (roofline.POINT_TO_POINT_S + sent * _seconds_per_byte(gpu, exchange.gpus))
    return _bare(exchange.kernel, seconds)


def _gathered_s(gpu: Gpu, exchange: Exchange, tokens: FloatArray) -> Priced[FloatArray]:
    message = tokens * exchange.hidden_size * SENT_BYTES
    for measured_on in measured_gpus(gpu):
        if not _same_links(gpu, measured_on):
            continue
        try:
            return _collectives_s(gpu, measured_on, exchange, message)
        except MissingTable:
            continue
    each = roofline.POINT_TO_POINT_S + message * _seconds_per_byte(gpu, exchange.gpus)
    return _bare(GATHERED, 2.0 * each)


def _collectives_s(
    gpu: Gpu, measured_on: Gpu, exchange: Exchange, message: FloatArray
) -> Priced[FloatArray]:
    """Returns seconds of an all-gather and a reduce-scatter over the ranks."""
    seconds = np.zeros(len(message))
    for op in ("all_gather", "reduce_scatter"):
        rows, near = _nccl_rows(_folder(measured_on), op, exchange.ranks)
        sizes = rows.column("message_bytes").astype(np.float64)
        wanted = _ring_share(exchange.ranks) * _seconds_per_byte(gpu, exchange.gpus)
        measured = _ring_share(near) * _seconds_per_byte(measured_on, near)
        line = held_line(message, sizes, rows.latency_s, lambda x: x)
        seconds += _stretched(line, rows, wanted / measured)
    other = "" if near == exchange.ranks else f"{near} GPUs, scaled to {exchange.ranks}"
    is_own = measured_on == gpu and not other
    return Priced(seconds, _source(GATHERED, measured_on, "nccl", rows.version, other, is_own))


def _kernels_s(
    gpu: Gpu, measured_on: Gpu, owner: str, exchange: Exchange, per_gpu: FloatArray, *, home: bool
) -> Priced[FloatArray]:
    """Returns seconds of all phases of one backend's kernels."""
    table = load_table(_folder(measured_on), owner, "alltoall")
    table = table.select(comm_backend=_MEASURED_AS[exchange.kernel])
    phases = [phase for phase in _PHASES if phase in table.axis("phase")]
    seconds, others = np.zeros(len(per_gpu)), []
    for phase in phases:
        rows, found = _nearest_rows(table.select(phase=phase), phase, exchange)
        counts = rows.column("num_tokens").astype(np.float64)
        line = held_line(per_gpu, counts, rows.latency_s, lambda x: x)
        wanted = _sent_s(gpu, exchange.hidden_size, exchange.topk, exchange.gpus)
        hidden, topk, experts, gpus = found
        seconds += _stretched(line, rows, wanted / _sent_s(measured_on, hidden, topk, gpus))
        if found != (exchange.hidden_size, exchange.topk, exchange.num_experts, exchange.gpus):
            others.append(f"hidden {hidden}, top-{topk} of {experts}, EP {gpus}")
    other = ", ".join(dict.fromkeys(others))
    is_own = home and measured_on == gpu and not other
    return Priced(
        seconds, _source(exchange.kernel, measured_on, owner, table.version, other, is_own)
    )


@lru_cache(maxsize=64)
def _nccl_rows(folder: str, op: str, ranks: int) -> tuple[OpTable, int]:
    table = load_table(folder, "nccl", "nccl").select(op=op, nccl_dtype="half")
    groups = np.asarray(table.axis("num_gpus"), dtype=np.int64)
    near = int(groups[np.argmin(np.abs(np.log2(groups / ranks)))])
    return table.select(num_gpus=near), near


def _nearest_rows(
    table: OpTable, phase: str, exchange: Exchange
) -> tuple[OpTable, tuple[int, int, int, int]]:
    """Returns the rows of the nearest measured shape, and that shape."""
    table = table.select(comm_dtype=_sent_dtype(table, phase, exchange.dtype))
    shapes = table.distinct(*_SHAPE)
    wanted = [exchange.hidden_size, exchange.topk, exchange.num_experts, exchange.gpus]
    nearest, _ = nearest_sites(np.array(wanted, dtype=np.float64), shapes, count=1)
    hidden, topk, experts, gpus = (int(v) for v in shapes[nearest[0]])
    shape = dict(zip(_SHAPE, (hidden, topk, experts, gpus), strict=True))
    return table.select(**shape), (hidden, topk, experts, gpus)


def _sent_dtype(table: OpTable, phase: str, experts: str) -> str:
    """Returns the dtype that a phase sends: the experts' on the way there, bfloat16 back."""
    known = [str(name) for name in table.axis("comm_dtype")]
    own = experts.removesuffix("_block") if phase != "combine" else "bfloat16"
    return next((name for name in (own, "bfloat16", "default") if name in known), known[0])


def _owners(gpu: Gpu, backend: str) -> Iterator[tuple[Gpu, str]]:
    """Returns whose tables are asked: this GPU's under every backend, then those of others."""
    others = [name for name in TABLE_BACKENDS if name != backend]
    for measured_on in measured_gpus(gpu):
        if _same_links(gpu, measured_on):
            for owner in (backend, *others):
                yield measured_on, owner


def _same_links(gpu: Gpu, other: Gpu) -> bool:
    return (gpu.nvlink_bandwidth_bytes_s is None) == (other.nvlink_bandwidth_bytes_s is None)


def _folder(gpu: Gpu) -> str:
    if gpu.tables is None:
        raise MissingTable(f"no measured tables for {gpu.name}")
    return gpu.tables


def _stretched(seconds: FloatArray, rows: OpTable, ratio: float) -> FloatArray:
    """Returns seconds whose part beyond the launch is multiplied."""
    launch = rows.latency_s.min()
    return np.asarray(launch + (seconds - launch) * ratio, dtype=np.float64)


def _ring_share(ranks: int) -> float:
    return (ranks - 1) / ranks


def _sent_s(gpu: Gpu, hidden: int, topk: int, gpus: int) -> float:
    """Returns link seconds of one token on its way to its experts, of which some are near."""
    return hidden * topk * _ring_share(gpus) * _seconds_per_byte(gpu, gpus)


def _seconds_per_byte(gpu: Gpu, gpus: int) -> float:
    if has_multi_node_nvlink(gpu) and gpu.nvlink_bandwidth_bytes_s:
        return 1.0 / gpu.nvlink_bandwidth_bytes_s
    return 1.0 / roofline.link_bytes_s(gpu, gpus)


def _source(
    name: str, measured_on: Gpu, owner: str, version: str, other: str, is_own: bool
) -> OpSource:
    kind: Provenance = "measured" if is_own else "transferred"
    words = [f"{measured_on.key} {owner} {version}", other]
    return OpSource(name, kind, ", ".join(w for w in words if w))


def _bare(name: str, seconds: FloatArray) -> Priced[FloatArray]:
    detail = f"no exchange measured: {LINK_SHARE:.0%} of the link"
    return Priced(seconds / LINK_SHARE, OpSource(name, "roofline", detail))
