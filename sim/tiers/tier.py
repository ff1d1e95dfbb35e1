"""One tier of KV cache: which units it holds, least recently used first."""

from __future__ import annotations

from dynosim.hardware_models.kv_tiers import TierSpec
from dynosim.sim.tiers.channel import Channel


class Tier:
    """Units by id, each with the time from which it can be read.

    ``channels`` are what a transfer to or from it passes besides the GPU's own link.
    """

    __slots__ = ("_capacity", "_ready_s", "channels", "loaded_units", "spec", "stored_units")

    def __init__(self, spec: TierSpec, unit_bytes: float, channels: tuple[Channel, ...]) -> None:
        self.spec = spec
        self.channels = channels
        self.loaded_units = 0
        self.stored_units = 0
        self._capacity = int(spec.capacity_bytes / unit_bytes)
        # In order of use: a dict keeps it, and moves to its end at no cost.
        self._ready_s: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._ready_s)

    def __contains__(self, unit: int) -> bool:
        return unit in self._ready_s

    def clear(self) -> None:
        """Forgets all that is here."""
        self._ready_s.clear()

    def ready_s(self, unit: int) -> float:
        """Returns from when on a unit that is here can be read."""
        return self._ready_s[unit]

    def touch(self, unit: int) -> None:
        """Makes a unit that is here the one used last."""
        self._ready_s[unit] = self._ready_s.pop(unit)

    def put(self, unit: int, ready_s: float) -> int | None:
        """Adds a unit; returns the one that has to go for it, itself where there is no room."""
        if not self._capacity:
            return unit
        self._ready_s[unit] = ready_s
        self.stored_units += 1
        if len(self._ready_s) <= self._capacity:
            return None
        oldest = next(iter(self._ready_s))
        del self._ready_s[oldest]
        return oldest
