"""Paged KV cache with prefix caching: who holds which blocks, and which are evicted first.

Rules, after vLLM V1's documented design ("Automatic Prefix Caching", docs.vllm.ai): a block that
no request holds stays cached until its space is needed; space is taken from the block freed
longest ago, and a request's blocks are freed last block first, so that a prefix outlives what was
built on it. Identity is kept per *unit*, the prefix block of the workload (``blocks_per_unit`` KV
blocks); a unit is hit whole or not at all. Blocks that nobody else can ever ask for (a prompt's
partial tail, generated tokens) are counted, not named.
"""

from __future__ import annotations

from collections import OrderedDict


class KvCache:
    """Block accounting of one engine replica.

    ``free_blocks`` counts blocks that no request holds, cached or not. Unit ids are non-negative
    and chained: one id stands for one prefix.
    """

    __slots__ = (
        "_anonymous_key",
        "_evictable",
        "_head",
        "_private_unit",
        "_refs",
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
        self._refs: dict[int, int] = {}
        self._anonymous_key = -1
        self._private_unit = 1 << 60

    @property
    def used_blocks(self) -> int:
        """Blocks that requests hold now."""
        return self.num_blocks - self.free_blocks

    def hits(self, units: list[int], limit: int) -> int:
        """Returns how many leading units of ``units[:limit]`` are cached."""
        refs = self._refs
        n = 0
        for unit in units:
            if n == limit or unit not in refs:
                break
            n += 1
        return n

    def evictable_hits(self, units: list[int], num_hits: int) -> int:
        """Returns the blocks of ``units[:num_hits]`` that are free now and would be taken back."""
        refs = self._refs
        return self.blocks_per_unit * sum(not refs[unit] for unit in units[:num_hits])

    def hold(self, units: list[int], num_hits: int) -> None:
        """Takes the cached ``units[:num_hits]`` for one more request."""
        refs = self._refs
        evictable = self._evictable
        for unit in units[:num_hits]:
            held = refs[unit]
            if not held:
                del evictable[unit]
                self.free_blocks -= self.blocks_per_unit
            refs[unit] = held + 1

    def take(self, num_blocks: int) -> None:
        """Takes ``num_blocks`` free blocks, forgetting the units they held.

        The caller has checked that ``num_blocks <= free_blocks``.
        """
        self.free_blocks -= num_blocks
        missing = num_blocks - self._head
        if missing <= 0:
            self._head = -missing
            return
        pop = self._evictable.popitem
        refs = self._refs
        while missing > 0:
            key, blocks = pop(False)
            if key >= 0:
                del refs[key]
            missing -= blocks
        self._head = -missing

    def register(self, units: list[int], start: int, stop: int) -> int:
        """Makes ``units[start:stop]``, held and computed by one request, findable by others.

        Returns where that stopped: a unit that another request has cached meanwhile, and all
        after it, stay nameless in this request's hands.
        """
        refs = self._refs
        for position in range(start, stop):
            unit = units[position]
            if unit in refs:
                return position
            refs[unit] = 1
        return stop

    def private_units(self, count: int) -> list[int]:
        """Returns ``count`` fresh unit ids that no other request can share."""
        first = self._private_unit
        self._private_unit = first + count
        return list(range(first, first + count))

    def release(self, units: list[int], num_named: int, num_blocks: int) -> None:
        """Frees a request's ``num_blocks`` blocks, of which ``units[:num_named]`` are named."""
        evictable = self._evictable
        per_unit = self.blocks_per_unit
        nameless = num_blocks - num_named * per_unit
        if nameless:
            evictable[self._anonymous_key] = nameless
            self._anonymous_key -= 1
        freed = nameless
        refs = self._refs
        for position in range(num_named - 1, -1, -1):
            unit = units[position]
            held = refs[unit] - 1
            refs[unit] = held
            if not held:
                evictable[unit] = per_unit
                freed += per_unit
        self.free_blocks += freed

    def check(self) -> None:
        """Raises AssertionError unless every block is either held or free exactly once."""
        named_free = sum(self._evictable.values())
        assert self._head + named_free == self.free_blocks, "free blocks do not add up"
        assert 0 <= self.free_blocks <= self.num_blocks, "more blocks than there are"
        for key in self._evictable:
            assert key < 0 or self._refs[key] == 0, "a held unit is in the eviction queue"
