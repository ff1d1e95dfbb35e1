"""Seconds of an engine's start, read from its card."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from dynosim.hardware_models.cards import Source, read_card, source_of


@dataclass(frozen=True, kw_only=True)
class StartupFigures:
    """What one engine's start takes; sources stand in ``data/startup/*.yaml``.

    ``process_s`` is spent on processes and imports, more where several GPUs need one each
    (``process_parallel_s``), ``model_init_s`` on building the model around its weights. Compiling
    grows with the layers of a pipeline stage, more where they are quantised, and for tensor
    parallel sizes above 2 (``compile_wide_s``). Waking from sleep level 1 copies weights over a
    share of PCIe's bandwidth, from level 2 reads them at ``wake_2_bytes_s``. A snapshot has what
    is on the GPU, and in host memory ``snapshot_host_bytes`` and a share of the weights.
    """

    process_s: float
    process_parallel_s: float
    model_init_s: float
    compile_s: float
    compile_per_layer_s: float
    compile_quantised_per_layer_s: float
    compile_wide_s: float
    compile_cached_s: float
    profiling_s: float
    profiling_cached_s: float
    graphs_s: float
    graphs_per_layer_s: float
    graphs_moe_s: float
    warm_up_s: float
    warm_up_pipeline_s: float
    wake_1_s: float
    wake_1_pcie_share: float
    wake_2_s: float
    wake_2_bytes_s: float
    restore_s: float
    snapshot_host_bytes: float
    snapshot_host_weight_share: float


def _card(backend: str) -> dict[str, Any]:
    card = read_card("startup", backend)
    return _card(card["like"]) if "like" in card else card


def borrows_from(backend: str) -> str | None:
    """Returns the backend whose figures stand in for this one's, None where it has its own."""
    like: str | None = read_card("startup", backend).get("like")
    return like


@lru_cache(maxsize=16)
def startup_figures(backend: str) -> StartupFigures:
    """Returns the figures of ``backend`` (a key of the catalogue)."""
    card = _card(backend)
    return StartupFigures(**{f.name: card[f.name]["value"] for f in fields(StartupFigures)})


def startup_sources(backend: str) -> dict[str, Source]:
    """Returns figure -> source."""
    card = _card(backend)
    return {f.name: source_of(card, card[f.name]) for f in fields(StartupFigures)}
