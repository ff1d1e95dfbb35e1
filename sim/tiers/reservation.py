"""Blocks that are kept for a request while its KV is on its way, in either kind of prefix cache."""

from __future__ import annotations

from typing import Protocol

from dynosim.sim.engine.kv_cache import KvCache
from dynosim.sim.engine.radix_cache import Lease, RadixCache
from dynosim.sim.engine.schedulers.base import BlockPool
from dynosim.sim.engine.stretch import num_units


class Reservation(Protocol):
    """A cached prefix that is held, and free blocks behind it, until ``drop``."""

    def land(self) -> None:
        """Lets requests find the units that have come."""
        ...

    def drop(self) -> None:
        """Lets go of all of it; what has not landed is empty again."""
        ...


def cached_units(pool: BlockPool, units: list[int], limit: int) -> tuple[int, int]:
    """Returns how many leading units the GPU has, and the blocks of them that nobody holds."""
    if isinstance(pool, RadixCache):
        node, found, _ = pool.match(units, None, limit)
        return found, pool.idle_blocks(node)
    assert isinstance(pool, KvCache)
    chain = pool.find(units, limit)
    return num_units(chain), pool.evictable(chain)


def reserve(pool: BlockPool, units: list[int], start: int, stop: int) -> Reservation:
    """Holds ``units[:start]``, which are cached, and takes blocks for those up to ``stop``."""
    if isinstance(pool, RadixCache):
        return _Leased(pool, units, start, stop)
    assert isinstance(pool, KvCache)
    return _Held(pool, units, start, stop)


class _Held:
    """In vLLM's cache: as a request that runs holds them."""

    def __init__(self, kv: KvCache, units: list[int], start: int, stop: int) -> None:
        self._kv = kv
        self._units = units
        self._start, self._stop = start, stop
        self._held = kv.find(units, start)
        self._landed = False
        kv.hold(self._held)
        kv.take((stop - start) * kv.blocks_per_unit)

    def land(self) -> None:
        self._held = self._kv.register(self._units, self._held, self._start, self._stop)
        self._landed = True

    def drop(self) -> None:
        per_unit = self._kv.blocks_per_unit
        cached = (self._stop if self._landed else self._start) * per_unit
        self._kv.release(self._held, cached, self._stop * per_unit - cached)


class _Leased:
    """In SGLang's tree: under a lease of their own."""

    def __init__(self, kv: RadixCache, units: list[int], start: int, stop: int) -> None:
        self._kv = kv
        self._units = units
        self._stop = stop
        self._lease = lease = Lease(kv.root)
        node, lease.units, lease.blocks = kv.match(units, None, start)
        assert lease.units == start, "a prefix has gone since it was found"
        kv.lock(node)
        lease.node = node
        self._waiting_blocks = num_blocks = (stop - start) * kv.blocks_per_unit
        kv.make_room(num_blocks)
        kv.take(num_blocks)

    def land(self) -> None:
        kv = self._kv
        self._waiting_blocks = 0
        kv.insert(self._lease, self._units, self._stop, self._stop * kv.blocks_per_unit)

    def drop(self) -> None:
        self._kv.give_back(self._waiting_blocks)
        self._kv.release(self._lease)
