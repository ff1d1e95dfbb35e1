"""Cards of GPUs that a user wrote: one YAML file, named in place of a GPU of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dynosim.hardware_models.cards import read_yaml, value_of
from dynosim.hardware_models.errors import UserError, unknown_name

OPTIONAL: dict[str, Any] = {
    "name": None,
    "aliases": (),
    "tables": None,
    "tables_nearest": None,
    "nvlink_bandwidth_bytes_s": None,
    "nvlink_gpus": None,
    "list_price_usd": None,
    "cloud_price_usd_hour": None,
    "multiprocessors": None,
    "multiprocessor_shared_bytes": None,
    "l2_cache_bytes": None,
}
"""Keys that a card may leave out, and what that means."""

REQUIRED = (
    *("key", "compute_capability", "memory_bytes", "hbm_bandwidth_bytes_s", "peak_flop_s"),
    *("pcie_bandwidth_bytes_s", "internode_bandwidth_bytes_s", "gpus_per_node", "tdp_w"),
)

LIKE, KERNEL_TABLES, SOURCES = "like", "kernel_tables", "sources"


def is_card_file(name: str) -> bool:
    """Whether a GPU is named by the path of its card."""
    return name.endswith((".yaml", ".yml"))


def read_gpu_file(path: Path, shipped: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Returns the card in a user's file, in the form of the shipped ones.

    ``like`` names a GPU of the catalogue whose figures (given by ``shipped``) hold where the file
    has none; ``kernel_tables`` a folder of tables, relative to the file. Figures may be plain
    numbers or rows of a value and its source. Raises UserError with the file and the key.
    """
    written = read_yaml(path)
    known = (*REQUIRED, *OPTIONAL, LIKE, KERNEL_TABLES, SOURCES)
    for key in written:
        if key not in known:
            raise unknown_name("key", str(key), known, where=str(path))
    card = dict(OPTIONAL)
    if LIKE in written:
        card |= shipped(str(written[LIKE]))
        card |= {"tables_nearest": card["tables"] or card["tables_nearest"], "tables": None}
        card["key"] = path.stem
    card |= {key: value for key, value in written.items() if key != LIKE}
    _require(card, path)
    card |= {key: value_of(card, key) for key in ("compute_capability", "gpus_per_node")}
    peaks = card["peak_flop_s"].items()
    card["peak_flop_s"] = {n: r if isinstance(r, dict) else {"value": r} for n, r in peaks}
    card["name"] = card["name"] or card["key"]
    folder = card.pop(KERNEL_TABLES, None)
    card["own_tables"] = None if folder is None else str((path.parent / str(folder)).resolve())
    return card


def _require(card: dict[str, Any], path: Path) -> None:
    missing = [key for key in REQUIRED if key not in card]
    if missing:
        hint = f"needed: {', '.join(missing)}; or `{LIKE}: GPU` to take them from one"
        raise UserError(f"`{missing[0]}` is missing", where=str(path), hint=hint)
    peaks = card["peak_flop_s"]
    if not isinstance(peaks, dict) or not {"bfloat16", "float16"} & set(peaks):
        hint = "allowed: rates by dtype in FLOP/s, bfloat16 or float16 among them"
        raise UserError(f"found {peaks!r}", where=f"{path}: peak_flop_s", hint=hint)
    figures = (key for key in REQUIRED if key not in ("key", "peak_flop_s"))
    _numbers({key: card[key] for key in figures}.items(), path)
    _numbers(((f"peak_flop_s.{dtype}", rate) for dtype, rate in peaks.items()), path)


def _numbers(figures: Iterable[tuple[str, Any]], path: Path) -> None:
    for key, row in figures:
        value = row.get("value") if isinstance(row, dict) else row
        if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
            hint = "allowed: a number; YAML reads 1e12 as text, write 1.0e+12"
            raise UserError(f"found {value!r}", where=f"{path}: {key}", hint=hint)
