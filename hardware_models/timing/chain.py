"""The sources that price one (GPU, backend), best first; outside packages may add theirs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import log

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.gpus import Gpu, get_gpu, list_gpus
from dynosim.hardware_models.timing.roofline import peak_flop_s
from dynosim.hardware_models.timing.roofline_source import RooflineSource
from dynosim.hardware_models.timing.shapes import MoeBlock
from dynosim.hardware_models.timing.source import Chain, Priced, TimingSource
from dynosim.hardware_models.timing.table_source import TableSource
from dynosim.hardware_models.timing.tables import MissingTable
from dynosim.hardware_models.timing.transfer import same_generation

TABLE_BACKENDS = ("trtllm", "sglang", "vllm")
"""Backends with measured tables, the most complete first: the order of borrowing."""

SourceFactory = Callable[[Gpu, str], TimingSource | None]
_registered: list[SourceFactory] = []
_caches: list[Callable[[], None]] = []


def register_source(factory: SourceFactory) -> None:
    """Puts a source before the shipped tables, for every (GPU, backend) it answers for.

    ``factory`` gets the GPU and the backend's name and returns None where it has nothing.
    """
    _registered.insert(0, factory)
    forget_prices()


def unregister_source(factory: SourceFactory) -> None:
    """Takes a source out again."""
    _registered.remove(factory)
    forget_prices()


def on_change(forget: Callable[[], None]) -> None:
    """Has ``forget`` called when sources come or go: for caches of what they answered."""
    _caches.append(forget)


def forget_prices() -> None:
    """Empties every cache of answers."""
    timing_source.cache_clear()
    for forget in _caches:
        forget()


FEW_TOKENS = 64
"""Up to here experts take as long as reading their weights does, on every GPU of the tables."""


class BackendChain(Chain):
    """The sources of one (GPU, backend), which knows what no stand-in may cost."""

    def moe_s(self, tokens: FloatArray, block: MoeBlock, dtype: str) -> Priced[FloatArray]:
        """Returns the first answer, unless it is a stand-in slower than the 16-bit experts.

        Kernels that read fewer bytes per weight may be slow, but another backend's are no witness
        of that: TensorRT-LLM's fp8 experts take twice as long as vLLM's bfloat16 ones at some
        shapes on H100. The rooflines' ratio to this backend's 16-bit experts says more.
        """
        found = super().moe_s(tokens, block, dtype)
        if found.source.source == "measured" or dtype in ("bfloat16", "float16"):
            return found
        few = np.minimum(tokens, FEW_TOKENS)
        try:
            plain = super().moe_s(few, block, "bfloat16").value
        except MissingTable:
            return found
        asked = super().moe_s(few, block, dtype).value
        if float(np.median(asked / plain)) <= 1.0:
            return found
        roofline = next(s for s in self.sources() if isinstance(s, RooflineSource))
        return roofline.moe_s(tokens, block, dtype)


@lru_cache(maxsize=256)
def timing_source(gpu: Gpu, backend: str) -> TimingSource:
    """Returns what prices ops on ``gpu`` under ``backend``.

    In order: registered sources; the user's own tables; this GPU under this backend, then under
    others (a GPU without tables: the nearest one with them); this backend on GPUs of the same
    generation, nearest first; rooflines at the efficiency of those kernels.
    """
    own = [s for factory in _registered if (s := factory(gpu, backend)) is not None]
    if gpu.own_tables:
        from dynosim.hardware_models.timing.own_source import own_source

        own.append(own_source(gpu, backend))
    home = _home(gpu)
    if home is not None:
        others = [b for b in TABLE_BACKENDS if b != backend]
        own += [TableSource(gpu, home, b, home=b == backend) for b in (backend, *others)]
    return BackendChain(own, lambda: _stand_ins(gpu, backend, home, own))


def _stand_ins(
    gpu: Gpu, backend: str, home: Gpu | None, own: list[TimingSource]
) -> list[TimingSource]:
    """Returns what prices ops that the GPU's own tables do not have."""
    # Another GPU under another backend is too far: a roofline on own kernels comes closer.
    kin = [g for g in _kin(gpu) if g != home]
    tables: list[TimingSource] = [TableSource(gpu, g, backend, home=True) for g in kin]
    links = tuple(TableSource(gpu, g, backend, home=False) for g in _by_distance(gpu))
    return [*tables, RooflineSource(gpu, Chain([*own, *tables]), links)]


def measured_gpus(gpu: Gpu) -> list[Gpu]:
    """Returns the GPUs with tables: this one's own first, then the most similar."""
    home = _home(gpu)
    return [*([home] if home else []), *(g for g in _by_distance(gpu) if g != home)]


def _home(gpu: Gpu) -> Gpu | None:
    """Returns the GPU whose tables are this one's own: itself, or the nearest that has any."""
    if gpu.tables:
        return gpu
    if gpu.tables_nearest:
        return get_gpu(gpu.tables_nearest)
    return next(iter(_kin(gpu)), None)


def _kin(gpu: Gpu) -> list[Gpu]:
    """Returns the other GPUs with tables that run the same kernels, nearest first."""
    return [g for g in _by_distance(gpu) if same_generation(g, gpu)]


def _by_distance(gpu: Gpu) -> list[Gpu]:
    """Returns the other GPUs with tables, those of the most similar rates first."""
    others = [g for g in map(get_gpu, list_gpus()) if g.tables == g.key and g.key != gpu.key]
    return sorted(others, key=lambda g: _distance(g, gpu))


def _distance(a: Gpu, b: Gpu) -> float:
    compute = peak_flop_s(a, "bfloat16") / peak_flop_s(b, "bfloat16")
    return abs(log(compute)) + abs(log(a.hbm_bandwidth_bytes_s / b.hbm_bandwidth_bytes_s))
