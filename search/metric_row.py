"""The metrics of a trial in a fifth of a dictionary's memory: searches have thousands of trials."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache

Places = Mapping[str, tuple[int, type]]
"""Where a metric stands in a row, and whether it counts something."""


class MetricRow(Mapping[str, float]):
    """An immutable mapping; rows of the same metrics share their names."""

    __slots__ = ("_places", "_values")

    def __init__(self, metrics: Mapping[str, float]) -> None:
        self._places = _places(tuple(metrics), tuple(map(type, metrics.values())))
        self._values = array("d", metrics.values())

    def __getitem__(self, name: str) -> float:
        at, kind = self._places[name]
        value: float = kind(self._values[at])
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __repr__(self) -> str:
        return repr(dict(self))


@lru_cache(maxsize=256)
def _places(names: tuple[str, ...], kinds: tuple[type, ...]) -> Places:
    counts = [int if issubclass(kind, int) else float for kind in kinds]
    return {name: (at, kind) for at, (name, kind) in enumerate(zip(names, counts, strict=True))}
