"""The tiers of one replica: what is stored where, found again, and how long copies take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dynosim.hardware_models.kv_tiers import KvTiers
from dynosim.sim.tiers.channel import Channel
from dynosim.sim.tiers.tier import Tier


@dataclass(frozen=True)
class Plan:
    """Units of a request that are to come from tiers: ``tiers[i]`` holds the i-th of them."""

    units: list[int]
    tiers: list[Tier]


class SharedStorage:
    """The tiers that several replicas share, and the channel to all of them."""

    def __init__(self, spec: KvTiers, blocks_per_unit: int) -> None:
        self.tiers: dict[str, Tier] = {}
        for tier in spec.tiers:
            if tier.total_bandwidth_bytes_s is not None:
                channel = Channel(f"{tier.name} storage", tier.total_bandwidth_bytes_s)
                unit_bytes = spec.block_bytes * blocks_per_unit
                self.tiers[tier.name] = Tier(tier, unit_bytes, (channel,))


class TierStack:
    """Watches one replica's prefix cache, keeps what it computes or evicts, and finds it again.

    The engine sets ``now_s`` before its cache does anything. A unit is kept in one tier or several;
    what a tier has no room for goes to the next one. Copies to the first tier take the GPU's link
    in its direction from the GPU, loads the other one; drives and storage carry both.
    """

    def __init__(self, spec: KvTiers, blocks_per_unit: int, shared: SharedStorage) -> None:
        self.now_s = 0.0
        self.into = Channel("host to GPU", spec.link_bytes_s)
        self.out = Channel("GPU to host", spec.link_bytes_s)
        self.tiers: list[Tier] = []
        self.own_channels: list[Channel] = [self.into, self.out]
        self._unit_bytes = spec.block_bytes * blocks_per_unit
        self._writes_through = spec.writes_through
        self._is_forgetting = False
        self._ways: dict[str, tuple[Channel, ...]] = {}
        for tier in spec.tiers:
            own: tuple[Channel, ...] = ()
            if tier.name != "host":
                channel = Channel(f"{tier.name} of a replica", tier.bandwidth_bytes_s)
                own = (channel,)
                self.own_channels.append(channel)
            kept = shared.tiers.get(tier.name)
            if kept is None:
                kept = Tier(tier, self._unit_bytes, ())
            self.tiers.append(kept)
            self._ways[tier.name] = (*own, *kept.channels)

    # --- what the cache tells -----------------------------------------------------------------

    def stored(self, units: list[int], start: int, stop: int) -> None:
        """Copies units that have just been computed, if they are to be written through."""
        if self._writes_through:
            self._keep(units[start:stop])

    def evicted(self, units: list[int], start: int, stop: int) -> None:
        """Copies units that leave the GPU, unless a tier has them."""
        if not self._is_forgetting:
            self._keep(units[start:stop])

    def _keep(self, units: list[int]) -> None:
        """Puts units into the first tier, the last of a prefix first: it is to go first."""
        for unit in reversed(units):
            holder = next((tier for tier in self.tiers if unit in tier), None)
            if holder is not None:
                holder.touch(unit)
                continue
            ready_s = self.out.carry(self.now_s, self._unit_bytes)
            self._put(0, unit, ready_s)

    def _put(self, level: int, unit: int, ready_s: float) -> None:
        """Puts a unit into a tier, and what it has no room for into the next, until one has."""
        moved: int | None = unit
        while moved is not None and level < len(self.tiers):
            tier = self.tiers[level]
            if moved in tier:
                tier.touch(moved)
                return
            for channel in self._ways[tier.spec.name]:
                ready_s = max(ready_s, channel.carry(self.now_s, self._unit_bytes))
            moved = tier.put(moved, ready_s + tier.spec.latency_s)
            level += 1

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Empties what is the replica's own: its process begins anew, and no copy is made of it."""
        self._is_forgetting = True
        yield
        self._is_forgetting = False
        for tier in self.tiers:
            if not tier.spec.is_shared:
                tier.clear()

    # --- what requests find -------------------------------------------------------------------

    def find(self, units: list[int], start: int, limit: int) -> Plan:
        """Returns the units from ``start`` on that lie in tiers without a gap, before ``limit``."""
        found = Plan([], [])
        for unit in units[start:limit]:
            holder = next((tier for tier in self.tiers if unit in tier), None)
            if holder is None:
                break
            found.units.append(unit)
            found.tiers.append(holder)
        return found

    def until_s(self, plan: Plan) -> float:
        """Returns when the last of the units would have come if their loads were queued now."""
        end_s = self.into.until_s(self.now_s, len(plan.units) * self._unit_bytes)
        for tier in self.tiers:
            count = sum(1 for one in plan.tiers if one is tier)
            if count:
                for channel in self._ways[tier.spec.name]:
                    end_s = max(end_s, channel.until_s(self.now_s, count * self._unit_bytes))
                end_s = max(end_s, self.now_s + tier.spec.latency_s)
        return max([end_s, *(t.ready_s(u) for u, t in zip(plan.units, plan.tiers, strict=True))])

    def load(self, plan: Plan) -> float:
        """Queues the loads; returns when the last unit has come."""
        end_s = self.until_s(plan)
        self.into.carry(self.now_s, len(plan.units) * self._unit_bytes)
        for tier in self.tiers:
            count = sum(1 for one in plan.tiers if one is tier)
            tier.loaded_units += count
            if count:
                for channel in self._ways[tier.spec.name]:
                    channel.carry(self.now_s, count * self._unit_bytes)
        for unit, tier in zip(reversed(plan.units), reversed(plan.tiers), strict=True):
            tier.touch(unit)
        return end_s
