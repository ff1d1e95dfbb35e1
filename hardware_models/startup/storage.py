"""Where weights and snapshots lie: bandwidth, who shares it, and what a reader gets of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from dynosim.hardware_models.cards import Source, card_keys, read_card, source_of
from dynosim.hardware_models.errors import unknown_name

Scope = Literal["node", "cluster"]


@dataclass(frozen=True, kw_only=True)
class Storage:
    """One place; figures and their sources stand in ``data/storage/*.yaml``.

    ``bandwidth_bytes_s`` is shared by all that read at once, on one node or in the whole cluster
    (``scope``). Of it, a GPU's ``readers_bytes_s`` get no more than their own pace, by kind of
    reader; ``default`` reads safetensors files one after the other.
    """

    key: str
    name: str
    scope: Scope
    bandwidth_bytes_s: float
    readers_bytes_s: tuple[tuple[str, float], ...]

    def reader_bytes_s(self, reader: str) -> float:
        """Returns the bytes a second that one GPU's reader takes at most.

        A kind that was not measured here reads as fast as the storage goes.
        """
        return dict(self.readers_bytes_s).get(reader, self.bandwidth_bytes_s)

    def with_bandwidth(self, bandwidth_bytes_s: float) -> Storage:
        """Returns the storage at another bandwidth; readers that were its equal keep up with it."""
        readers = tuple(
            (kind, max(pace, bandwidth_bytes_s) if pace >= self.bandwidth_bytes_s else pace)
            for kind, pace in self.readers_bytes_s
        )
        return replace(self, bandwidth_bytes_s=bandwidth_bytes_s, readers_bytes_s=readers)


def list_storages() -> tuple[str, ...]:
    """Returns the keys of all storages of the catalogue, sorted."""
    return card_keys("storage")


@lru_cache(maxsize=16)
def get_storage(name: str) -> Storage:
    """Returns the storage called ``name``; raises UserError with the nearest names."""
    key = name.casefold().replace("-", "_")
    if key not in list_storages():
        raise unknown_name("storage", name, list_storages(), where="startup_storage")
    card = read_card("storage", key)
    readers = card["readers_bytes_s"].items()
    return Storage(
        key=card["key"],
        name=card["name"],
        scope=card["scope"],
        bandwidth_bytes_s=card["bandwidth_bytes_s"]["value"],
        readers_bytes_s=tuple((kind, row["value"]) for kind, row in readers),
    )


def storage_sources(name: str) -> dict[str, Source]:
    """Returns figure -> source of a storage's card; readers by their kind."""
    card: dict[str, Any] = read_card("storage", get_storage(name).key)
    rows = {"bandwidth_bytes_s": card["bandwidth_bytes_s"], **card["readers_bytes_s"]}
    return {figure: source_of(card, row) for figure, row in rows.items()}
