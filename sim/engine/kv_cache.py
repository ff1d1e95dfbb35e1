"""Paged KV cache with prefix caching: who holds which blocks, and which are evicted first.

Rules as observed on vLLM 0.32.0 (``tests/parity``): a block that no request holds stays cached
until its space is needed. Blocks that hold nothing findable (a partial tail, or anything while
prefix caching is off) are used up first; then the block freed longest ago. A request's blocks are
freed last block first, so that a prefix outlives what was built on it. Two requests may compute
the same block; both copies stay, and the older one is found first.

Identity is kept per *unit*, the prefix block of the workload (``blocks_per_unit`` KV blocks); a
unit is hit whole or not at all. What one request computes is kept as one
:class:`~dynosim.sim.engine.stretch.Stretch`, so that costs follow the number of requests that
a prefix was put together by, not its length. Full blocks that nobody else can ever ask for
(generated tokens) are counted, not named.
"""

from __future__ import annotations

from collections import deque

from dynosim.sim.engine.cache_watcher import CacheWatcher
from dynosim.sim.engine.decode_set import DecodeSet
from dynosim.sim.engine.stretch import Chain, Place, Stretch, num_units

# Fewer empty places than this are not worth a pass over the queue.
_FEW_PLACES = 1000


class KvCache:
    """Block accounting of one engine replica.

    ``num_blocks`` are the blocks that requests can hold: vLLM's ``num_gpu_blocks`` less its null
    block. ``free_blocks`` counts those that no request holds, cached or not. Unit ids are
    non-negative and chained: one id stands for one prefix. What can be found is closed under
    taking prefixes: who holds a unit holds all before it, and frees them after it.
    """

    __slots__ = (
        "_empty_places",
        "_fresh_id",
        "_head",
        "_queue",
        "_spares",
        "_stretches",
        "blocks_per_unit",
        "free_blocks",
        "num_blocks",
        "watcher",
    )

    def __init__(self, num_blocks: int, blocks_per_unit: int = 1) -> None:
        self.watcher: CacheWatcher | None = None
        self.num_blocks = num_blocks
        self.blocks_per_unit = blocks_per_unit
        self.free_blocks = num_blocks
        # Free blocks in the order in which they will be taken: `_head` that hold nothing findable,
        # then the queue of what requests freed: numbers of full but nameless blocks, and places of
        # units. Units that are held again leave their place, which may stay in the queue empty.
        self._head = num_blocks
        self._queue: deque[int | Place] = deque()
        self._empty_places = 0
        # Stretches that can be found, by their first units; of units that were computed more than
        # once, the copies that are not found yet, one stretch each, oldest first.
        self._stretches: dict[int, Stretch] = {}
        self._spares: dict[int, list[Stretch]] = {}
        self._fresh_id = 1 << 60

    @property
    def used_blocks(self) -> int:
        """Blocks that requests hold now."""
        return self.num_blocks - self.free_blocks

    # --- entering -----------------------------------------------------------------------------

    def hits(self, units: list[int], limit: int) -> int:
        """Returns how many leading units of ``units[:limit]`` are cached."""
        return num_units(self.find(units, limit))

    def find(self, units: list[int], limit: int) -> Chain:
        """Returns the cached prefix of ``units[:limit]``."""
        stretches = self._stretches
        found: Chain = []
        n = 0
        limit = min(limit, len(units))
        while n < limit:
            stretch = stretches.get(units[n])
            if stretch is None:
                break
            length = stretch.shared(units, n, limit)
            found.append((stretch, length))
            n += length
        return found

    def evictable(self, found: Chain) -> int:
        """Returns the blocks of a prefix that are free now and would be taken back."""
        units = 0
        for stretch, length in found:
            if length > stretch.reach:
                units += length - stretch.reach
        return self.blocks_per_unit * units

    def hold(self, found: Chain) -> None:
        """Takes a prefix that was found for one more request."""
        for stretch, length in found:
            before = len(stretch.places)
            self.free_blocks -= self.blocks_per_unit * stretch.hold(length)
            self._empty_places += before - len(stretch.places)

    def register(self, units: list[int], held: Chain, start: int, stop: int) -> Chain:
        """Makes ``units[start:stop]``, computed by the request that holds ``held``, findable.

        ``held`` are copies of ``units[:start]``. Returns the request's copies of
        ``units[:stop]``; of units that others have cached meanwhile it has its own.
        """
        known = self._num_known(units, held, start, stop)
        if self.watcher is not None and start + known < stop:
            self.watcher.stored(units, start + known, stop)
        if known == 0 and held:
            stretch, length = held[-1]
            # No need for another stretch where this one goes on.
            if stretch.units is units and length == stretch.size and not stretch.is_spare:
                stretch.grow(stop - start)
                return [*held[:-1], (stretch, stretch.size)]
        held = held.copy()
        for position in range(start, start + known):
            spare = Stretch(units, position, 1, is_spare=True)
            self._spares.setdefault(spare.first, []).append(spare)
            held.append((spare, 1))
        if start + known < stop:
            stretch = Stretch(units, start + known, stop - start - known)
            self._stretches[stretch.first] = stretch
            held.append((stretch, stretch.size))
        return held

    def _num_known(self, units: list[int], held: Chain, start: int, stop: int) -> int:
        """Returns how many leading units of ``units[start:stop]`` are cached already.

        Where the last unit before them is found as the copy that is held, the next one is cached
        in the same stretch, at the start of another, or not at all.
        """
        if units[start] not in self._stretches:
            if not held:
                return 0
            stretch, length = held[-1]
            goes_on = length < stretch.size and stretch.unit(length) == units[start]
            if not stretch.is_spare and not goes_on:
                return 0
        return max(self.hits(units, stop) - start, 0)

    def private_units(self, count: int) -> list[int]:
        """Returns ``count`` fresh unit ids that no other request can share."""
        first = self._fresh_id + 1
        self._fresh_id += count
        return list(range(first, first + count))

    # --- taking and freeing -------------------------------------------------------------------

    def take(self, num_blocks: int) -> None:
        """Takes ``num_blocks`` free blocks, forgetting what they held.

        The caller has checked that ``num_blocks <= free_blocks``.
        """
        self.free_blocks -= num_blocks
        self._head -= num_blocks
        if self._head < 0:
            self._evict()

    def _evict(self) -> None:
        """Evicts what was freed longest ago until the head is there again.

        Of a last unit that is larger than what is missing, the other blocks stay empty.
        """
        queue = self._queue
        per_unit = self.blocks_per_unit
        head = self._head
        while head < 0:
            entry = queue[0]
            if isinstance(entry, int):
                queue.popleft()
                head += entry
                continue
            stretch = entry.stretch
            size = max(entry.low, entry.high + head // per_unit)
            if size == entry.high:
                # All of its units are held again, or were since.
                queue.popleft()
                self._empty_places -= 1
                continue
            head += (entry.high - size) * per_unit
            entry.high = size
            if self._spares:
                self._forget_one_by_one(stretch, size)
            else:
                self._shorten(stretch, size)
            if size == entry.low:
                # Deeper units are freed earlier, so it is the first of their places.
                queue.popleft()
                del stretch.places[0]
        self._head = head

    def take_steps(self, decoding: DecodeSet, num_steps: int) -> None:
        """Takes the blocks of a run of decode steps but its first."""
        blocks = decoding.blocks_behind_first(num_steps)
        if blocks:
            self.take(blocks)

    def steps_without_eviction(self, decoding: DecodeSet, num_steps: int) -> int:
        """Returns how many of the coming decode steps find blocks that hold nothing.

        The first step's blocks are taken already.
        """
        return decoding.steps_within(self._head + decoding.blocks_for_step(), num_steps)

    def _shorten(self, stretch: Stretch, size: int) -> None:
        """Forgets the units of a stretch behind ``size``."""
        if self.watcher is not None:
            self.watcher.evicted(stretch.units, stretch.start + size, stretch.start + stretch.size)
        stretch.size = size
        if not size:
            del self._stretches[stretch.first]

    def _forget_one_by_one(self, stretch: Stretch, size: int) -> None:
        """Forgets the units of a stretch behind ``size``, of which there may be further copies."""
        while stretch.size > size:
            unit = stretch.unit(stretch.size - 1)
            spares = self._spares.get(unit)
            if stretch.is_spare:
                assert spares is not None, "a spare copy is not among them"
                spares.remove(stretch)
                stretch.size = 0
            else:
                if spares:
                    # Another copy is found from now on, so nothing is forgotten.
                    stretch.size -= 1
                    if not stretch.size:
                        del self._stretches[stretch.first]
                    oldest = self._stretches[unit] = spares.pop(0)
                    oldest.is_spare = False
                else:
                    self._shorten(stretch, stretch.size - 1)
            if spares is not None and not spares:
                del self._spares[unit]

    def flush(self) -> None:
        """Forgets all that no request holds."""
        free = self.free_blocks
        self.take(free)
        self.release([], 0, free)

    def release(self, held: Chain, num_full: int, num_rest: int) -> None:
        """Frees a request's blocks: ``num_full`` that are cached and ``num_rest`` that are not.

        The copies ``held`` are the first of the full blocks.
        """
        freed = num_rest
        self._head += num_rest
        nameless = num_full - num_units(held) * self.blocks_per_unit if held else num_full
        if nameless:
            freed += nameless
            self._queue.append(nameless)
        for stretch, length in reversed(held):
            low = stretch.leave(length)
            if low < length:
                freed += (length - low) * self.blocks_per_unit
                place = Place(stretch, low, length)
                stretch.places.append(place)
                self._queue.append(place)
        self.free_blocks += freed
        if self._empty_places > len(self._queue) // 2 + _FEW_PLACES:
            self._drop_empty_places()

    def _drop_empty_places(self) -> None:
        """Drops the places that were left, of which a pool that never fills would gather many."""
        self._queue = deque(e for e in self._queue if isinstance(e, int) or e.low < e.high)
        self._empty_places = 0

    def check(self) -> None:
        """Raises AssertionError unless every block is either held or free exactly once."""
        free = self._head
        empty = 0
        places: dict[Stretch, list[Place]] = {}
        for entry in self._queue:
            if isinstance(entry, int):
                free += entry
            elif entry.low == entry.high:
                empty += 1
            else:
                free += (entry.high - entry.low) * self.blocks_per_unit
                places.setdefault(entry.stretch, []).append(entry)
        assert free == self.free_blocks, "free blocks do not add up"
        assert 0 <= self.free_blocks <= self.num_blocks, "more blocks than there are"
        assert empty == self._empty_places, "empty places are miscounted"
        spares = [spare for copies in self._spares.values() for spare in copies]
        for stretch in [*self._stretches.values(), *spares]:
            own = places.pop(stretch, [])
            assert own == stretch.places, "the queue has other units of a stretch"
            bounds = [stretch.size, *(b for p in own for b in (p.high, p.low)), stretch.reach]
            assert bounds[::2] == bounds[1::2], "a unit is neither held nor free, or both"
        assert not places, "a free unit cannot be found"
        for unit in self._spares:
            assert self._spares[unit], "a unit without spare copies is kept"
