"""What caches hold, looked up without touching anything."""

from __future__ import annotations

from dynosim.sim.engine.kv_cache import KvCache
from dynosim.sim.engine.radix_cache import RadixCache
from dynosim.sim.engine.schedulers.base import BlockPool


def cached_units(pool: BlockPool, units: list[int]) -> int:
    """Returns how many leading units are cached."""
    if isinstance(pool, KvCache):
        return pool.hits(units, len(units))
    assert isinstance(pool, RadixCache)
    node, at = pool.root, 0
    while at < len(units) and (child := node.children.get(units[at])) is not None:
        shared = 0
        for ours, theirs in zip(units[at:], child.units, strict=False):
            if ours != theirs:
                break
            shared += 1
        at += shared
        if shared < len(child.units):
            break
        node = child
    return at
