"""GPUs, models and backends as the catalogue has them, each figure with its source."""

from __future__ import annotations

from typing import Any

from dynosim.commands.list import SHELVES
from dynosim.hardware_models.backends import get_backend, list_backends
from dynosim.hardware_models.cards import read_card
from dynosim.hardware_models.gpus import get_gpu, list_gpus
from dynosim.hardware_models.llm.catalog import list_models
from dynosim.hardware_models.startup.storage import list_storages
from site_pages.markdown import code, link, name, table
from site_pages.units import unit


def gpus_page() -> str:
    """Returns the reference of GPUs."""
    sections = "\n".join(_gpu(key) for key in list_gpus())
    return (
        "# GPUs\n\n"
        "One card each in `hardware_models/data/gpus/`. `timings` says whether kernel times were\n"
        "*measured* on this GPU or are *inferred* from the nearest measured one. Figures marked ≈\n"
        "are estimates: street prices, or what no data sheet states. A GPU of your own is\n"
        "[a card](../describe-a-gpu.md).\n\n"
        f"{_shelf('gpus')}\n{sections}"
    )


def models_page() -> str:
    """Returns the reference of models."""
    return (
        "# Models\n\n"
        f"{len(list_models())} models by their Hugging Face names. Any other is the path of its\n"
        "`config.json`: `--model ./my-model/config.json`.\n\n"
        f"{_shelf('models')}"
    )


def backends_page() -> str:
    """Returns the reference of backends and their versions."""
    return (
        "# Backends and versions\n\n"
        "What an engine does where the user says nothing: a row holds from its version on.\n"
        "Overheads are priors; where runs were measured, [fitted ones](../calibration.md)\n"
        "stand in for them.\n\n"
        f"{_shelf('backends')}\n" + "\n".join(_backend(key) for key in list_backends())
    )


def storages_page() -> str:
    """Returns the reference of storages."""
    rows = []
    for key in list_storages():
        card = read_card("storage", key)
        shown = f"{float(_value(card['bandwidth_bytes_s'])) / 1e9:.2f}"
        rows.append((code(key), card["name"], card["scope"], shown, _sources(card)))
    header = ("storage", "name", "shared by", "GB/s", "source")
    return (
        "# Storages\n\nWhere weights and snapshots are read from when a replica\n"
        f"[starts](../startup.md).\n\n{table(header, rows)}"
    )


def _shelf(kind: str) -> str:
    shelf = SHELVES[kind]
    return table(shelf.header, [[code(r[0]), *r[1:]] for r in map(shelf.row, shelf.names())])


def _gpu(key: str) -> str:
    card, gpu = read_card("gpus", key), get_gpu(key)
    rows = [
        (name(figure), _shown(row), unit(figure), _source(card, row))
        for figure, row in _figures(card)
    ]
    also = ", ".join(map(code, gpu.aliases))
    return (
        f"## {gpu.key}\n\n{gpu.name}; also {also}.\n\n"
        f"{table(('figure', 'value', 'unit', 'source'), rows)}"
    )


def _backend(key: str) -> str:
    card = read_card("backends", key)
    rows = [
        (name(figure), str(version), _shown(row), unit(figure), _source(card, row))
        for version, figures in card["versions"].items()
        for figure, row in figures.items()
    ]
    backend = get_backend(key)
    return (
        f"## {key}\n\nVersions {card['oldest_version']} to {card['newest_version']}; by default\n"
        f"{backend.version}.\n\n{table(('figure', 'from', 'value', 'unit', 'source'), rows)}"
    )


def _figures(card: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Returns the figures of a card that have a source, rates by dtype one by one."""
    found = []
    for key, row in card.items():
        if key == "sources" or not isinstance(row, dict):
            continue
        if "source" in row:
            found.append((key, row))
        else:
            found += [(f"{key}: {part}", inner) for part, inner in row.items()]
    return found


def _value(row: Any) -> Any:
    return row["value"] if isinstance(row, dict) and "value" in row else row


def _shown(row: dict[str, Any]) -> str:
    """Returns a figure's values as text; ≈ marks an estimate."""
    known = {k: v for k, v in row.items() if k not in ("source", "estimate")}
    value = known.pop("value", None)
    parts = [] if value is None and known else [_number(value)]
    parts += [_by(key, v) for key, v in known.items()]
    return ("≈ " if row.get("estimate") else "") + "; ".join(parts)


def _by(key: str, value: Any) -> str:
    """Returns what a figure is where something holds: on large GPUs, from a size of memory on."""
    if key == "by_memory_gib":
        return "; ".join(f"from {gib} GiB on: {_number(v)}" for gib, v in value)
    return f"{key}: {_number(value)}"


def _number(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else "none" if value is None else str(value)


def _source(card: dict[str, Any], row: dict[str, Any]) -> str:
    source = card["sources"][row["source"]]
    return f"{link(source['title'], source['url'])}, {source['date']}"


def _sources(card: dict[str, Any]) -> str:
    return "; ".join(f"{link(s['title'], s['url'])}, {s['date']}" for s in card["sources"].values())
