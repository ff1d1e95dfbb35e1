"""Paged KV cache with prefix caching: who holds which blocks, and which are evicted first.

Rules as observed on vLLM 0.32.0 (``tests/parity``): a block that no request holds stays cached
until its space is needed. Blocks that hold nothing findable (a partial tail, or anything while
prefix caching is off) are used up first; then the block freed longest ago. A request's blocks are
freed last block first, so that a prefix outlives what was built on it. Two requests may compute
the same block; both copies stay, and the older one is found first.

Identity is kept per *unit*, the prefix block of the workload (``blocks_per_unit`` KV blocks); a
unit is hit whole or not at all. A request holds *copies* of units. The first copy of a unit goes
by the unit's own id, further ones by fresh ids. Full blocks that nobody else can ever ask for
(generated tokens) are counted, not named.
"""

from __future__ import annotations

from collections import Counter, deque

from dynosim.sim.engine.decode_set import DecodeSet

# Fewer places than this are not worth a pass over the queue.
_FEW_PLACES = 1000


class KvCache:
    """Block accounting of one engine replica.

    ``num_blocks`` are the blocks that requests can hold: vLLM's ``num_gpu_blocks`` less its null
    block. ``free_blocks`` counts those that no request holds, cached or not. Unit ids are
    non-negative and chained: one id stands for one prefix.
    """

    __slots__ = (
        "_at",
        "_cached",
        "_copies",
        "_free",
        "_fresh_id",
        "_head",
        "_left",
        "_num_left",
        "_queue",
        "_sharers",
        "_unit_of",
        "blocks_per_unit",
        "free_blocks",
        "num_blocks",
    )

    def __init__(self, num_blocks: int, blocks_per_unit: int = 1) -> None:
        self.num_blocks = num_blocks
        self.blocks_per_unit = blocks_per_unit
        self.free_blocks = num_blocks
        # Free blocks in the order in which they will be taken: `_head` that hold nothing findable,
        # then the queue of what requests freed: numbers of full but nameless blocks, and lists of
        # copies, the first from `_at` on. A copy that is held again leaves its place in the
        # queue standing; `_left` counts such places, which all come before its next one.
        self._head = num_blocks
        self._queue: deque[int | list[int]] = deque()
        self._at = 0
        self._free: set[int] = set()
        self._left: dict[int, int] = {}
        self._num_left = 0
        # Units that can be found, held or not; and how many requests beyond one hold a copy.
        self._cached: set[int] = set()
        self._sharers: dict[int, int] = {}
        # Only of units with a copy that does not go by the unit's id: all copies, oldest first;
        # and the unit of each such copy.
        self._copies: dict[int, list[int]] = {}
        self._unit_of: dict[int, int] = {}
        self._fresh_id = 1 << 60

    @property
    def used_blocks(self) -> int:
        """Blocks that requests hold now."""
        return self.num_blocks - self.free_blocks

    # --- entering -----------------------------------------------------------------------------

    def hits(self, units: list[int], limit: int) -> int:
        """Returns how many leading units of ``units[:limit]`` are cached."""
        cached = self._cached
        n = 0
        for unit in units:
            if n == limit or unit not in cached:
                break
            n += 1
        return n

    def find(self, units: list[int], num_hits: int) -> list[int]:
        """Returns the copies of the cached ``units[:num_hits]``, and the other units behind them.

        The list is ``units`` itself where every copy goes by its unit's id.
        """
        copies = self._copies
        if not copies or copies.keys().isdisjoint(units[:num_hits]):
            return units
        found = [copies[unit][0] if unit in copies else unit for unit in units[:num_hits]]
        return found + units[num_hits:]

    def evictable_hits(self, found: list[int], num_hits: int) -> int:
        """Returns the blocks of ``found[:num_hits]`` that are free now and would be taken back."""
        return self.blocks_per_unit * sum(map(self._free.__contains__, found[:num_hits]))

    def hold(self, found: list[int], num_hits: int) -> None:
        """Takes the copies ``found[:num_hits]`` for one more request."""
        free = self._free
        left = self._left
        sharers = self._sharers
        num_free = len(free)
        for copy in found[:num_hits]:
            if copy in free:
                free.remove(copy)
                left[copy] = left.get(copy, 0) + 1
                self.free_blocks -= self.blocks_per_unit
            else:
                sharers[copy] = sharers.get(copy, 0) + 1
        self._num_left += num_free - len(free)

    def register(self, units: list[int], held: list[int], start: int, stop: int) -> list[int]:
        """Makes ``units[start:stop]``, held and computed by one request, findable by others.

        Returns the request's copies: ``held``, or a new list where others have cached some of the
        same units meanwhile.
        """
        cached = self._cached
        new = units[start:stop]
        if cached.isdisjoint(new):
            cached.update(new)
            return held
        held = held.copy()
        for position, unit in enumerate(new, start):
            if unit in cached:
                held[position] = copy = self._fresh()
                self._unit_of[copy] = unit
                self._copies.setdefault(unit, [unit]).append(copy)
            else:
                cached.add(unit)
        return held

    def private_units(self, count: int) -> list[int]:
        """Returns ``count`` fresh unit ids that no other request can share."""
        return [self._fresh() for _ in range(count)]

    def _fresh(self) -> int:
        self._fresh_id += 1
        return self._fresh_id

    # --- taking and freeing -------------------------------------------------------------------

    def take(self, num_blocks: int) -> None:
        """Takes ``num_blocks`` free blocks, forgetting what they held.

        The caller has checked that ``num_blocks <= free_blocks``.
        """
        self.free_blocks -= num_blocks
        self._head -= num_blocks
        if self._head < 0:
            self._evict_blocks(-self._head)

    def _evict_blocks(self, missing: int) -> None:
        """Evicts until ``missing`` blocks are there; those of a last unit beyond it are left."""
        queue = self._queue
        while missing > 0:
            entry = queue[0]
            if isinstance(entry, int):
                queue.popleft()
                missing -= entry
            else:
                missing -= self._evict(entry, -(-missing // self.blocks_per_unit))
        self._head = -missing

    def take_steps(self, decoding: DecodeSet, num_steps: int) -> None:
        """Takes the blocks of a run of decode steps but its first."""
        self.take(decoding.blocks_needed(num_steps) - decoding.blocks_for_step())

    def _evict(self, entry: list[int], at_most: int) -> int:
        """Forgets up to ``at_most`` copies of the queue's first entry; returns their blocks."""
        start = self._at
        self._at = stop = start + at_most
        if stop >= len(entry):
            self._queue.popleft()
            self._at = 0
        evicted = entry[start:stop]
        if self._left and not self._left.keys().isdisjoint(evicted):
            evicted = [copy for copy in evicted if not self._was_left(copy)]
        self._free.difference_update(evicted)
        if self._copies:
            for copy in evicted:
                self._forget(copy)
        else:
            self._cached.difference_update(evicted)
        return len(evicted) * self.blocks_per_unit

    def _was_left(self, copy: int) -> bool:
        """Whether a copy that comes up in the queue was held again since; uses up the place."""
        places = self._left.get(copy)
        if places is None:
            return False
        self._num_left -= 1
        if places == 1:
            del self._left[copy]
        else:
            self._left[copy] = places - 1
        return True

    def _forget(self, key: int) -> None:
        """Makes an evicted copy unfindable; its unit too, if there is no other copy."""
        unit = self._unit_of.pop(key, key)
        copies = self._copies.get(unit)
        if copies is None:
            self._cached.discard(unit)
            return
        copies.remove(key)
        if not copies:
            self._cached.discard(unit)
        if not copies or copies == [unit]:
            del self._copies[unit]

    def release(self, held: list[int], num_named: int, num_full: int, num_rest: int) -> None:
        """Frees a request's blocks: ``num_full`` that are cached and ``num_rest`` that are not.

        The copies ``held[:num_named]`` are the first of the full blocks.
        """
        self._head += num_rest
        nameless = num_full - num_named * self.blocks_per_unit
        if nameless:
            self._queue.append(nameless)
        own = self._unshare(held, num_named)
        if own:
            own.reverse()
            self._queue.append(own)
            self._free.update(own)
            if self._num_left > 2 * len(self._free) + _FEW_PLACES:
                self._drop_left_places()
        self.free_blocks += num_rest + nameless + len(own) * self.blocks_per_unit

    def _drop_left_places(self) -> None:
        """Drops the places that were left, of which a pool that never fills would gather many."""
        kept: deque[int | list[int]] = deque()
        for entry in self._queue:
            if isinstance(entry, int):
                kept.append(entry)
            elif places := [copy for copy in entry[self._at :] if not self._was_left(copy)]:
                kept.append(places)
            self._at = 0
        self._queue = kept

    def _unshare(self, held: list[int], num_named: int) -> list[int]:
        """Gives up ``held[:num_named]``; returns the copies that nobody else holds, in order."""
        if not num_named:
            return []
        sharers = self._sharers
        # Ids are chained: whoever shares a unit shares all before it ...
        num_shared = 0
        for copy in held:
            if num_shared == num_named or copy not in sharers:
                break
            num_shared += 1
            self._leave(copy)
        own = held[num_shared:num_named]
        # ... unless there are several copies of one before it.
        if self._copies and not sharers.keys().isdisjoint(own):
            shared = sharers.keys() & own
            for copy in shared:
                self._leave(copy)
            own = [copy for copy in own if copy not in shared]
        return own

    def _leave(self, copy: int) -> None:
        count = self._sharers[copy]
        if count == 1:
            del self._sharers[copy]
        else:
            self._sharers[copy] = count - 1

    def check(self) -> None:
        """Raises AssertionError unless every block is either held or free exactly once."""
        nameless = sum(entry for entry in self._queue if isinstance(entry, int))
        queued = nameless + len(self._free) * self.blocks_per_unit
        assert self._head + queued == self.free_blocks, "free blocks do not add up"
        assert 0 <= self.free_blocks <= self.num_blocks, "more blocks than there are"
        places = Counter(c for e in self._queue if isinstance(e, list) for c in e)
        if self._queue and isinstance(self._queue[0], list):
            places -= Counter(self._queue[0][: self._at])
        assert places == Counter(self._free) + Counter(self._left), "the queue has other copies"
        assert self._num_left == sum(self._left.values()), "left places are miscounted"
        for copy in self._free:
            assert self._unit_of.get(copy, copy) in self._cached, "a free unit cannot be found"
            assert copy not in self._sharers, "a held unit is in the eviction queue"
        for unit, copies in self._copies.items():
            assert copies, "a unit without copies is kept"
            assert unit in self._cached, "a unit with copies cannot be found"
