"""The block accounting on its own, and against one that goes block by block."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from dynosim.sim.engine.kv_cache import KvCache
from dynosim.sim.engine.stretch import Chain, num_units


def use(kv: KvCache, units: list[int], tail: int = 1) -> int:
    """Runs one request of these units and a partial block to its end; returns its hits."""
    num_hits = kv.hits(units, len(units))
    held = kv.find(units, num_hits)
    kv.hold(held)
    kv.take(len(units) - num_hits + tail)
    if num_hits < len(units):
        held = kv.register(units, held, num_hits, len(units))
    kv.release(held, len(units), tail)
    kv.check()
    return num_hits


def test_a_prefix_that_is_used_again_and_again_keeps_the_queue_short() -> None:
    kv = KvCache(100)
    units = list(range(50))
    assert use(kv, units) == 0
    for _ in range(4000):
        assert use(kv, units) == 50
    assert len(kv._queue) < 2500


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


def test_of_two_copies_the_older_is_found_and_the_other_takes_its_place() -> None:
    kv = KvCache(4)
    units = [1, 2]
    kv.take(4)
    first = kv.register(units, [], 0, 2)
    second = kv.register(list(units), [], 0, 2)
    assert kv.find(units, 2) == first
    kv.release(first, 2, 0)
    assert kv.evictable(kv.find(units, 2)) == 2, "what is found is the copy that nobody holds"
    kv.take(1)
    assert kv.hits(units, 2) == 2, "the end of the older copy is gone, that of the other is not"
    assert kv.evictable(kv.find(units, 2)) == 1
    kv.release(second, 2, 1)
    kv.check()
    assert kv.free_blocks == 4


# --- block by block -------------------------------------------------------------------------------


@dataclass(eq=False)
class Copy:
    """One block that holds a unit."""

    unit: int
    holders: int = 1


@dataclass
class BlockByBlock:
    """The rules as they are told: one list of free blocks, one list of copies a unit."""

    empty: int
    queue: list[Copy | None] = field(default_factory=list)
    copies: dict[int, list[Copy]] = field(default_factory=dict)

    def find(self, units: list[int]) -> list[Copy]:
        found = []
        for unit in units:
            if not self.copies.get(unit):
                break
            found.append(self.copies[unit][0])
        return found

    def hold(self, found: list[Copy]) -> None:
        for copy in found:
            if copy.holders == 0:
                self.queue.remove(copy)
            copy.holders += 1

    def register(self, units: list[int]) -> list[Copy]:
        made = [Copy(unit) for unit in units]
        for copy in made:
            self.copies.setdefault(copy.unit, []).append(copy)
        return made

    def take(self, num_blocks: int) -> None:
        from_empty = min(num_blocks, self.empty)
        self.empty -= from_empty
        for _ in range(num_blocks - from_empty):
            copy = self.queue.pop(0)
            if copy is not None:
                self.copies[copy.unit].remove(copy)

    def release(self, held: list[Copy], num_full: int, num_rest: int) -> None:
        self.empty += num_rest
        self.queue += [None] * (num_full - len(held))
        for copy in reversed(held):
            copy.holders -= 1
            if copy.holders == 0:
                self.queue.append(copy)


@dataclass
class Request:
    """One request in both caches: blocks of its path, and generated ones that nobody shares."""

    path: list[int]
    held: Chain
    copies: list[Copy]
    blocks: int
    named: int


class Twins:
    """The same requests in the cache and in the one that goes block by block."""

    def __init__(self, num_blocks: int) -> None:
        self.kv = KvCache(num_blocks)
        self.plain = BlockByBlock(num_blocks)
        self.running: list[Request] = []

    def enter(self, path: list[int]) -> None:
        """Lets a request in with what it finds of its path."""
        held, copies = self.kv.find(path, len(path)), self.plain.find(path)
        assert num_units(held) == len(copies)
        assert self.kv.evictable(held) == sum(copy.holders == 0 for copy in copies)
        self.kv.hold(held)
        self.plain.hold(copies)
        self.running.append(Request(path, held, copies, len(copies), len(copies)))

    def compute(self, request: Request, num_blocks: int) -> None:
        """Takes blocks, of which others can find what belongs to the path."""
        num_blocks = min(num_blocks, self.kv.free_blocks)
        self.kv.take(num_blocks)
        self.plain.take(num_blocks)
        request.blocks += num_blocks
        stop = min(request.blocks, len(request.path))
        if stop > request.named:
            request.held = self.kv.register(request.path, request.held, request.named, stop)
            request.copies += self.plain.register(request.path[request.named : stop])
            request.named = stop

    def leave(self, request: Request, num_rest: int) -> None:
        """Ends a request whose last blocks are not full."""
        num_rest = min(num_rest, request.blocks - request.named)
        self.kv.release(request.held, request.blocks - num_rest, num_rest)
        self.plain.release(request.copies, request.blocks - num_rest, num_rest)
        self.running.remove(request)

    def compare(self, paths: list[list[int]]) -> None:
        """Asserts that both have the same blocks free and find the same."""
        self.kv.check()
        assert self.kv.free_blocks == self.plain.empty + len(self.plain.queue)
        for path in paths:
            assert self.kv.hits(path, len(path)) == len(self.plain.find(path))


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), num_blocks=st.sampled_from([6, 12, 40]))
def test_stretches_find_and_evict_what_single_blocks_do(seed: int, num_blocks: int) -> None:
    draw = random.Random(seed)
    # Paths fork from one another: an id stands for all before it.
    paths = [list(range(10))]
    for i in range(1, 6):
        fork = draw.choice(paths)[: draw.randrange(10)]
        paths.append(fork + [100 * i + j for j in range(draw.randrange(1, 9))])
    twins = Twins(num_blocks)
    for _ in range(60):
        if not twins.running or draw.random() < 0.3:
            twins.enter(list(draw.choice(paths)))
        elif draw.random() < 0.7:
            twins.compute(draw.choice(twins.running), draw.randrange(1, 6))
        else:
            twins.leave(draw.choice(twins.running), draw.randrange(2))
        twins.compare(paths)
    while twins.running:
        twins.leave(twins.running[0], 0)
        twins.compare(paths)
    assert twins.kv.used_blocks == 0
