"""Cards: one small YAML file per thing, each figure with its source and date."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import UserError

DATA = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a figure was read; ``date`` (ISO) is that of the page, log or price list."""

    title: str
    url: str
    date: str
    estimate: bool = False


def read_yaml(path: Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file; UserError with file and line where it is none."""
    import yaml

    try:
        content = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", where=str(path)) from error
    except yaml.YAMLError as error:
        raise UserError(f"not YAML: {error}", where=str(path)) from error
    if not isinstance(content, dict):
        raise UserError("expected a mapping of keys to values", where=str(path))
    return content


@lru_cache(maxsize=256)
def read_card(kind: str, key: str) -> dict[str, Any]:
    """Returns one shipped card, ``data/<kind>/<key>.yaml``; callers must not change it."""
    return read_yaml(DATA / kind / f"{key}.yaml")


@lru_cache(maxsize=8)
def card_keys(kind: str) -> tuple[str, ...]:
    """Returns the keys of all shipped cards of a kind, sorted."""
    return tuple(sorted(p.stem for p in (DATA / kind).glob("*.yaml")))


def value_of(card: dict[str, Any], figure: str) -> Any:
    """Returns the value of a figure; None where the card says that there is none."""
    row = card[figure]
    return row["value"] if isinstance(row, dict) else row


def source_of(card: dict[str, Any], row: dict[str, Any]) -> Source:
    """Returns the source of a figure's row; KeyError where the card names none."""
    source = card["sources"][row["source"]]
    return Source(
        title=source["title"],
        url=source["url"],
        date=str(source["date"]),
        estimate=bool(row.get("estimate", False)),
    )
