"""Paged KV cache with prefix caching: who holds which blocks, and which are evicted first.

Rules, after vLLM V1's documented design ("Automatic Prefix Caching", docs.vllm.ai): a block that
no request holds stays cached until its space is needed; space is taken from the block freed
longest ago, and a request's blocks are freed last block first, so that a prefix outlives what was
built on it. Identity is kept per *unit*, the prefix block of the workload (``blocks_per_unit`` KV
blocks); a unit is hit whole or not at all. Blocks that nobody else can ever ask for (a prompt's
partial tail, generated tokens) are counted, not named.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict


class KvCache:
    """Block accounting of one engine replica.

    ``free_blocks`` counts blocks that no request holds, cached or not. Unit ids are non-negative
    and chained: one id stands for one prefix.
    """

    __slots__ = (
        "_anonymous_key",
        "_cached",
        "_evictable",
        "_head",
        "_private_unit",
        "_sharers",
        "blocks_per_unit",
        "free_blocks",
        "num_blocks",
    )

    def __init__(self, num_blocks: int, blocks_per_unit: int = 1) -> None:
        self.num_blocks = num_blocks
        self.blocks_per_unit = blocks_per_unit
        self.free_blocks = num_blocks
        # Free blocks in the order in which they will be taken: `_head` nameless ones first, then
        # the queue, whose keys are unit ids (cached) or negative serial numbers (nameless).
        self._head = num_blocks
        self._evictable: OrderedDict[int, int] = OrderedDict()
        # Units that can be found, held or not; and how many requests beyond one hold a unit.
        self._cached: set[int] = set()
        self._sharers: dict[int, int] = {}
        self._anonymous_key = -1
        self._private_unit = 1 << 60

    @property
    def used_blocks(self) -> int:
        """Blocks that requests hold now."""
        return self.num_blocks - self.free_blocks

    def hits(self, units: list[int], limit: int) -> int:
        """Returns how many leading units of ``units[:limit]`` are cached."""
        cached = self._cached
        n = 0
        for unit in units:
            if n == limit or unit not in cached:
                break
            n += 1
        return n

    def evictable_hits(self, units: list[int], num_hits: int) -> int:
        """Returns the blocks of ``units[:num_hits]`` that are free now and would be taken back."""
        return self.blocks_per_unit * sum(map(self._evictable.__contains__, units[:num_hits]))

    def hold(self, units: list[int], num_hits: int) -> None:
        """Takes the cached ``units[:num_hits]`` for one more request."""
        evictable = self._evictable
        sharers = self._sharers
        for unit in units[:num_hits]:
            if unit in evictable:
                del evictable[unit]
                self.free_blocks -= self.blocks_per_unit
            else:
                sharers[unit] = sharers.get(unit, 0) + 1

    def take(self, num_blocks: int) -> None:
        """Takes ``num_blocks`` free blocks, forgetting the units they held.

        The caller has checked that ``num_blocks <= free_blocks``.
        """
        self.free_blocks -= num_blocks
        missing = num_blocks - self._head
        if missing > 0:
            pop = self._evictable.popitem
            forget = self._cached.discard
            while missing > 0:
                key, blocks = pop(False)
                forget(key)
                missing -= blocks
        self._head = -missing

    def register(self, units: list[int], start: int, stop: int) -> int:
        """Makes ``units[start:stop]``, held and computed by one request, findable by others.

        Returns where that stopped: a unit that another request has cached meanwhile, and all
        after it, stay nameless in this request's hands.
        """
        cached = self._cached
        new = units[start:stop]
        if not cached.isdisjoint(new):
            new = list(itertools.takewhile(lambda unit: unit not in cached, new))
        cached.update(new)
        return start + len(new)

    def private_units(self, count: int) -> list[int]:
        """Returns ``count`` fresh unit ids that no other request can share."""
        first = self._private_unit
        self._private_unit = first + count
        return list(range(first, first + count))

    def release(self, units: list[int], num_named: int, num_blocks: int) -> None:
        """Frees a request's ``num_blocks`` blocks, of which ``units[:num_named]`` are named."""
        evictable = self._evictable
        sharers = self._sharers
        per_unit = self.blocks_per_unit
        nameless = num_blocks - num_named * per_unit
        if nameless:
            evictable[self._anonymous_key] = nameless
            self._anonymous_key -= 1
        # Ids are chained: whoever shares a unit shares all before it.
        num_shared = 0
        for unit in units:
            if num_shared == num_named or unit not in sharers:
                break
            num_shared += 1
            if sharers[unit] == 1:
                del sharers[unit]
            else:
                sharers[unit] -= 1
        own = units[num_shared:num_named]
        own.reverse()
        evictable.update(dict.fromkeys(own, per_unit))
        self.free_blocks += nameless + len(own) * per_unit

    def check(self) -> None:
        """Raises AssertionError unless every block is either held or free exactly once."""
        named_free = sum(self._evictable.values())
        assert self._head + named_free == self.free_blocks, "free blocks do not add up"
        assert 0 <= self.free_blocks <= self.num_blocks, "more blocks than there are"
        for key in self._evictable:
            assert key < 0 or key in self._cached, "a free unit cannot be found"
            assert key not in self._sharers, "a held unit is in the eviction queue"
