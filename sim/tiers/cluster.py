"""The tiers of all replicas of a run: set up before it, read out after it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from dynosim.hardware_models.kv_tiers import KvTiers
from dynosim.sim.engine.cache_watcher import CacheWatcher
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.timing import Timer
from dynosim.sim.tiers.result import ChannelUse, TierResult, TierUse
from dynosim.sim.tiers.stack import SharedStorage, TierStack
from dynosim.sim.tiers.tier import Tier
from dynosim.sim.tiers.tiered_engine import TieredEngine


class Both:
    """Tells two who follow a cache."""

    def __init__(self, first: CacheWatcher, second: CacheWatcher) -> None:
        self._watchers = (first, second)

    def stored(self, units: list[int], start: int, stop: int) -> None:
        for watcher in self._watchers:
            watcher.stored(units, start, stop)

    def evicted(self, units: list[int], start: int, stop: int) -> None:
        for watcher in self._watchers:
            watcher.evicted(units, start, stop)


class TieredCluster:
    """Makes engines with tiers, and tells what became of these.

    ``beside`` are those of another pool, which share storage with these where both have some.
    """

    def __init__(
        self,
        spec: KvTiers,
        unit_tokens: int,
        blocks_per_unit: int,
        beside: TieredCluster | None = None,
    ) -> None:
        self.engines: list[TieredEngine] = []
        self._spec = spec
        self._unit_tokens = unit_tokens
        self._blocks_per_unit = blocks_per_unit
        self._shared = SharedStorage(spec, blocks_per_unit)
        if beside is not None and beside.is_shared and self.is_shared:
            self._shared = beside._shared
        self._stacks: list[TierStack] = []

    @property
    def is_shared(self) -> bool:
        """Whether replicas share a tier, to which they must come in order of time."""
        return self._spec.is_shared

    def engine(self, timer: Timer, limits: EngineLimits, num_blocks: int) -> TieredEngine:
        """Returns the next replica's engine, whose cache its tiers follow."""
        stack = TierStack(self._spec, self._blocks_per_unit, self._shared)
        engine = TieredEngine(
            timer,
            limits,
            num_blocks,
            self._blocks_per_unit,
            stack,
            self._spec.most_loads,
            loads_always=self._spec.loads_always,
        )
        engine.kv.watcher = stack
        self._stacks.append(stack)
        self.engines.append(engine)
        return engine

    @property
    def stacks(self) -> list[TierStack]:
        """The tiers of every engine."""
        return self._stacks

    def follow(self) -> None:
        """Has tiers told, too, where others have begun to follow the caches since."""
        for engine, stack in zip(self.engines, self._stacks, strict=True):
            other = engine.kv.watcher
            if other is not None and other is not stack:
                engine.kv.watcher = Both(stack, other)

    def result(self) -> TierResult:
        """Returns what the tiers held and carried."""
        rows = [
            (request, replica, start_s, end_s, tokens)
            for replica, engine in enumerate(self.engines)
            for request, start_s, end_s, tokens in engine.loads
        ]
        request, replica, start_s, end_s, tokens = zip(*rows, strict=True) if rows else ([],) * 5
        return TierResult(
            tiers=tuple(self._uses()),
            channels=tuple(self._channels()),
            request=np.array(request, dtype=np.int64),
            replica=np.array(replica, dtype=np.int64),
            start_s=np.array(start_s, dtype=np.float64),
            end_s=np.array(end_s, dtype=np.float64),
            tokens=np.array(tokens, dtype=np.int64),
        )

    def _uses(self) -> list[TierUse]:
        kinds: dict[str, dict[int, Tier]] = defaultdict(dict)
        for stack in self._stacks:
            for tier in stack.tiers:
                kinds[tier.spec.name][id(tier)] = tier
        return [
            TierUse(
                name=name,
                stored_tokens=self._unit_tokens * sum(t.stored_units for t in tiers.values()),
                loaded_tokens=self._unit_tokens * sum(t.loaded_units for t in tiers.values()),
                held_tokens=self._unit_tokens * sum(map(len, tiers.values())),
            )
            for name, tiers in kinds.items()
        ]

    def _channels(self) -> list[ChannelUse]:
        kinds = defaultdict(list)
        for stack in self._stacks:
            for channel in stack.own_channels:
                kinds[channel.name].append(channel)
        for tier in self._shared.tiers.values():
            for channel in tier.channels:
                kinds[channel.name].append(channel)
        return [
            ChannelUse(
                name=name,
                carried_bytes=sum(c.carried_bytes for c in channels),
                busy_s=sum(c.busy_s for c in channels),
                count=len(channels),
            )
            for name, channels in kinds.items()
        ]
