"""The block accounting on its own."""

from __future__ import annotations

from dynosim.sim.engine.kv_cache import KvCache


def use(kv: KvCache, units: list[int], tail: int = 1) -> int:
    """Runs one request of these units and a partial block to its end; returns its hits."""
    num_hits = kv.hits(units, len(units))
    found = kv.find(units, num_hits)
    kv.hold(found, num_hits)
    kv.take(len(units) - num_hits + tail)
    held = kv.register(units, found, num_hits, len(units))
    kv.release(held, len(units), len(units), tail)
    kv.check()
    return num_hits


def test_a_prefix_that_is_used_again_and_again_keeps_the_queue_short() -> None:
    kv = KvCache(100)
    units = list(range(50))
    assert use(kv, units) == 0
    for _ in range(400):
        assert use(kv, units) == 50
    assert sum(len(entry) for entry in kv._queue if isinstance(entry, list)) < 1500


def test_using_a_prefix_again_makes_it_the_last_to_be_evicted() -> None:
    kv = KvCache(8)
    old, hot = [1, 2, 3], [4, 5, 6]
    use(kv, hot)
    use(kv, old)
    use(kv, hot)
    # Two blocks are empty; two of these four evict the older prefix from its end.
    use(kv, [7, 8, 9], tail=1)
    assert kv.hits(hot, 3) == 3
    assert kv.hits(old, 3) == 1
