"""GPUs as data rows: memory, bandwidth, peak rates, links, power and prices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dynosim.hardware_models.cards import Source, card_keys, read_card, source_of, value_of
from dynosim.hardware_models.errors import unknown_name
from dynosim.hardware_models.gpu_file import is_card_file, read_gpu_file
from dynosim.hardware_models.names import fold_gpu, spellings


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU type; every figure's source and date stand beside it in ``data/gpus/*.yaml``.

    ``memory_bytes`` is what the driver reports as total, not the nameplate. Bandwidths of links
    are per GPU and direction. ``peak_flop_s`` are dense rates as (dtype, FLOP/s) pairs.
    ``nvlink_bandwidth_bytes_s`` is None where GPUs talk over PCIe. ``tables`` names the folder
    of measured kernel tables (None: roofline only); ``tables_nearest`` that of the measured GPU
    most like this one, whose efficiencies may stand in. ``multiprocessors``, their shared memory
    and the L2 cache are None where no model of time asks for them. ``nvlink_gpus`` is how many
    GPUs one NVLink group joins where that is no node: a bridge joins two, a rack 72.
    ``own_tables`` is a folder of tables that the user measured, asked before the shipped ones.
    """

    key: str
    name: str
    aliases: tuple[str, ...]
    compute_capability: float
    memory_bytes: int
    hbm_bandwidth_bytes_s: float
    peak_flop_s: tuple[tuple[str, float], ...]
    nvlink_bandwidth_bytes_s: float | None
    pcie_bandwidth_bytes_s: float
    internode_bandwidth_bytes_s: float
    gpus_per_node: int
    tdp_w: float
    list_price_usd: float | None
    cloud_price_usd_hour: float | None
    tables: str | None
    tables_nearest: str | None = None
    multiprocessors: int | None = None
    multiprocessor_shared_bytes: int | None = None
    l2_cache_bytes: int | None = None
    nvlink_gpus: int | None = None
    own_tables: str | None = None

    def joins_by_nvlink(self, num_gpus: int) -> bool:
        """Whether the GPUs of such a group, inside a node, all talk over NVLink."""
        return num_gpus == 1 or num_gpus <= self.nvlink_domain_gpus

    @property
    def nvlink_domain_gpus(self) -> int:
        """How many GPUs NVLink joins: a bridge's, a node's or a rack's; 1 without NVLink."""
        if self.nvlink_bandwidth_bytes_s is None:
            return 1
        return self.nvlink_gpus or self.gpus_per_node

    @property
    def near_gpus(self) -> int:
        """How many GPUs reach each other without a network: a node's, or more over NVLink."""
        return max(self.gpus_per_node, self.nvlink_domain_gpus)

    def peak(self, dtype: str) -> float:
        """Returns the dense peak rate in FLOP/s; KeyError where the GPU has no such dtype."""
        return dict(self.peak_flop_s)[dtype]

    def supports(self, dtype: str) -> bool:
        """Whether the tensor cores compute in ``dtype``."""
        return any(name == dtype for name, _ in self.peak_flop_s)


_FIGURES = (
    "memory_bytes",
    "hbm_bandwidth_bytes_s",
    "nvlink_bandwidth_bytes_s",
    "pcie_bandwidth_bytes_s",
    "internode_bandwidth_bytes_s",
    "tdp_w",
    "list_price_usd",
    "cloud_price_usd_hour",
)
_CHIP_FIGURES = ("multiprocessors", "multiprocessor_shared_bytes", "l2_cache_bytes")
"""Figures that a card may leave out."""


def list_gpus() -> tuple[str, ...]:
    """Returns the keys of all GPUs of the catalogue, sorted."""
    return card_keys("gpus")


@lru_cache(maxsize=1)
def _index() -> dict[str, str]:
    cards = {key: read_card("gpus", key) for key in list_gpus()}
    return spellings({key: (card["name"], *card["aliases"]) for key, card in cards.items()})


def _names() -> list[str]:
    return [n for key in list_gpus() for n in (key, *read_card("gpus", key)["aliases"])]


@lru_cache(maxsize=256)
def get_gpu(name: str) -> Gpu:
    """Returns the GPU that ``name`` means: its key, its driver's device name or an alias.

    Case, separators and the vendor's name do not matter. A name that ends in ``.yaml`` is the
    path of a card (:mod:`.gpu_file`). Raises UserError with the nearest spellings for any other
    name.
    """
    if is_card_file(name):
        return _from_card(read_gpu_file(Path(name), _shipped_card))
    key = name if name in list_gpus() else _index().get(fold_gpu(name))
    if key is None:
        raise unknown_name("gpu", name, _names())
    return _from_card(read_card("gpus", key))


def _shipped_card(name: str) -> dict[str, Any]:
    return read_card("gpus", get_gpu(name).key)


def _from_card(card: dict[str, Any]) -> Gpu:
    named = (*_FIGURES, *(f for f in _CHIP_FIGURES if f in card))
    figures = {figure: value_of(card, figure) for figure in named}
    peaks = tuple((dtype, float(row["value"])) for dtype, row in card["peak_flop_s"].items())
    return Gpu(
        key=card["key"],
        name=card["name"],
        aliases=tuple(card["aliases"]),
        compute_capability=float(card["compute_capability"]),
        peak_flop_s=peaks,
        gpus_per_node=card["gpus_per_node"],
        tables=card["tables"],
        tables_nearest=card["tables_nearest"],
        nvlink_gpus=card.get("nvlink_gpus"),
        own_tables=card.get("own_tables"),
        **figures,
    )


def gpu_sources(name: str) -> dict[str, Source]:
    """Returns figure -> source of a GPU's card; figures the card leaves out are absent.

    Peak rates stand under ``peak_flop_s.<dtype>``. Raises UserError for an unknown name.
    """
    card = read_card("gpus", get_gpu(name).key)
    rows = {figure: card.get(figure) for figure in (*_FIGURES, *_CHIP_FIGURES)}
    rows |= {f"peak_flop_s.{dtype}": row for dtype, row in card["peak_flop_s"].items()}
    return {figure: source_of(card, row) for figure, row in rows.items() if row is not None}
