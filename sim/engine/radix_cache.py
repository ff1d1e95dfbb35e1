"""Prefix cache as a radix tree over a pool of KV blocks: SGLang's, whole leaves evicted.

Rules, as read in SGLang 0.5.14 (``docs/sglang-rules.md`` says where): the tree keeps what finished
requests computed, prompt and answer, until its space is needed. A node is a run of blocks that
always occurred together; it is split where prompts part. A running request locks its path. Space
is made by evicting unlocked leaves whole, the one touched longest ago first; a parent without
children is a leaf. A request's own blocks enter the tree when its step is over; where another
request put the same ones there meanwhile, its copies are freed at once.

Prompts are runs of *units*, the prefix blocks of the workload (``blocks_per_unit`` KV blocks).
Blocks beyond a request's last unit, of its prompt and of its answer, are its *tail*: they take
space in the tree, but only the request itself could find them again.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from dynosim.sim.engine.cache_watcher import CacheWatcher
from dynosim.sim.engine.decode_set import DecodeSet

# Fewer entries than this are not worth a pass over the eviction queue.
_FEW_ENTRIES = 1000


class RadixNode:
    """A run of blocks behind those of its parent: of some units, then of a tail.

    ``time`` is that of the last touch. ``locks`` counts the running requests whose path leads
    through the node. ``number`` orders the children of a node by when they came.
    """

    __slots__ = (
        "blocks",
        "children",
        "is_cached",
        "key",
        "locks",
        "number",
        "parent",
        "tail",
        "time",
        "units",
    )

    def __init__(self, parent: RadixNode | None, units: list[int], tail: int, number: int) -> None:
        self.parent = parent
        self.units = units
        self.tail = tail
        self.blocks = 0
        self.number = number
        # Nobody looks for a tail by its key.
        self.key = units[0] if units else -1 - number
        self.children: dict[int, RadixNode] = {}
        self.locks = 0
        self.time = 0
        self.is_cached = True


class Lease:
    """What one request holds of the tree: the path down to ``node``.

    Its first ``units`` units are on that path, and its first ``blocks`` blocks are the tree's.
    ``tails`` are the nodes that keep blocks of its tail, in order.
    """

    __slots__ = ("blocks", "node", "tails", "units")

    def __init__(self, root: RadixNode) -> None:
        self.node = root
        self.units = 0
        self.blocks = 0
        self.tails: list[RadixNode] = []


class RadixCache:
    """The KV blocks of one engine replica: free, in the tree, or some request's own.

    ``free_blocks`` counts those that a request could get, evictable ones among them. With
    ``is_enabled`` off the tree stays empty.
    """

    __slots__ = (
        "_available",
        "_clock",
        "_leaves",
        "_num_nodes",
        "_numbers",
        "blocks_per_unit",
        "free_blocks",
        "is_enabled",
        "num_blocks",
        "root",
        "watcher",
    )

    def __init__(self, num_blocks: int, blocks_per_unit: int = 1, is_enabled: bool = True) -> None:
        self.watcher: CacheWatcher | None = None
        self.num_blocks = num_blocks
        self.blocks_per_unit = blocks_per_unit
        self.is_enabled = is_enabled
        self.free_blocks = num_blocks
        self.root = RadixNode(None, [], 0, 0)
        # Free blocks that hold nothing.
        self._available = num_blocks
        self._clock = 0
        self._num_nodes = 0
        self._numbers = count(1)
        # (time, number, node), an entry for every evictable leaf; those of nodes that were touched
        # or locked since, or have children now, are stale.
        self._leaves: list[tuple[int, int, RadixNode]] = []

    @property
    def used_blocks(self) -> int:
        """Blocks that requests hold now."""
        return self.num_blocks - self.free_blocks

    # --- finding ------------------------------------------------------------------------------

    def match(
        self, units: list[int], lease: Lease | None, limit: int | None = None
    ) -> tuple[RadixNode, int, int]:
        """Returns where the longest cached prefix of a waiting request ends, its units and blocks.

        It is looked for among the first ``limit`` units. Finding is touching. ``lease`` is that of
        a request that ran before, which may find its own tails.
        """
        stop = len(units) if limit is None else min(limit, len(units))
        node, num_units = self._descend(self.root, units, 0, stop, lease)
        num_blocks = num_units * self.blocks_per_unit
        if lease is not None and num_units == len(units):
            # Evicted from its end on, and perhaps computed again since.
            lease.tails = [tail for tail in lease.tails if tail.is_cached]
            for node in lease.tails:
                num_blocks += node.tail
        self._touch(node)
        return node, num_units, num_blocks

    def _descend(
        self, node: RadixNode, units: list[int], start: int, stop: int, lease: Lease | None
    ) -> tuple[RadixNode, int]:
        """Follows ``units[start:stop]`` down from ``node``; returns the last node and position.

        A node that is left before its end is split, and its rest touched too.
        """
        at = start
        while at < stop:
            child = node.children.get(units[at])
            if child is None:
                break
            length = len(child.units)
            if at + length <= stop and child.units == units[at : at + length]:
                shared = length
                is_whole = not child.tail or (lease is not None and child in lease.tails)
            else:
                shared = _num_shared(child.units, units, at, stop)
                is_whole = False
            if not is_whole:
                child = self._split(child, shared)
            node = child
            at += shared
        return node, at

    def _split(self, lower: RadixNode, num_units: int) -> RadixNode:
        """Gives the first units of a node a node of their own; returns that.

        Those who refer to the node go on meaning its end, where its tail is.
        """
        assert lower.parent is not None
        upper = RadixNode(lower.parent, lower.units[:num_units], 0, lower.number)
        upper.blocks = num_units * self.blocks_per_unit
        upper.locks = lower.locks
        self._clock += 1
        upper.time = lower.time = self._clock
        self._num_nodes += 1
        lower.parent.children[lower.key] = upper
        lower.parent = upper
        lower.units = lower.units[num_units:]
        lower.blocks -= upper.blocks
        lower.number = next(self._numbers)
        lower.key = lower.units[0] if lower.units else -1 - lower.number
        upper.children[lower.key] = lower
        self._offer(lower)
        return upper

    def _touch(self, node: RadixNode) -> None:
        self._clock = now = self._clock + 1
        end = node
        while node.parent is not None:
            node.time = now
            node = node.parent
        self._offer(end)

    # --- holding ------------------------------------------------------------------------------

    def idle_blocks(self, node: RadixNode) -> int:
        """Returns the blocks on the path to ``node`` that nobody holds."""
        idle = 0
        while node.parent is not None and not node.locks:
            idle += node.blocks
            node = node.parent
        return idle

    def lock(self, node: RadixNode) -> None:
        """Keeps the path to ``node`` from eviction for one more request."""
        while node.parent is not None:
            if not node.locks:
                self.free_blocks -= node.blocks
            node.locks += 1
            node = node.parent

    def unlock(self, node: RadixNode) -> None:
        """Takes back a ``lock``."""
        while node.parent is not None:
            node.locks -= 1
            if not node.locks:
                self.free_blocks += node.blocks
                self._offer(node)
            node = node.parent

    def insert(self, lease: Lease, units: list[int], num_units: int, num_blocks: int) -> None:
        """Puts a running request's first ``num_blocks`` blocks into the tree.

        ``num_units`` of them are units; blocks beyond these must be beyond all its ``units``.
        """
        if not self.is_enabled:
            return
        node, at = self._descend(lease.node, units, lease.units, num_units, lease)
        found = max(lease.blocks, at * self.blocks_per_unit)
        self.give_back(found - lease.blocks)
        self._lock_between(node, lease.node)
        if num_blocks > found:
            node = self._append(node, units[at:num_units], num_blocks - found)
            if node.tail:
                lease.tails.append(node)
        self._touch(node)
        lease.node = node
        lease.units = num_units
        lease.blocks = num_blocks

    def _lock_between(self, node: RadixNode, top: RadixNode) -> None:
        """Locks the path to ``node`` below ``top``, which is locked."""
        while node is not top:
            assert node.parent is not None, "a lease's node is not on its path"
            if not node.locks:
                self.free_blocks -= node.blocks
            node.locks += 1
            node = node.parent

    def _append(self, parent: RadixNode, units: list[int], num_blocks: int) -> RadixNode:
        """Adds a leaf of blocks that were one request's own, and locks it for that."""
        tail = num_blocks - len(units) * self.blocks_per_unit
        node = RadixNode(parent, units, tail, next(self._numbers))
        node.blocks = num_blocks
        node.locks = 1
        if self.watcher is not None:
            self.watcher.stored(units, 0, len(units))
        parent.children[node.key] = node
        self._num_nodes += 1
        return node

    def release(self, lease: Lease) -> None:
        """Lets go of a request's path."""
        self.unlock(lease.node)
        lease.node = self.root
        lease.units = lease.blocks = 0

    # --- taking and freeing -------------------------------------------------------------------

    def take(self, num_blocks: int) -> None:
        """Takes ``num_blocks`` for requests, evicting as many leaves as that needs.

        The caller has checked that ``num_blocks <= free_blocks``.
        """
        self.free_blocks -= num_blocks
        self._available -= num_blocks
        if self._available < 0:
            self._evict(-self._available)

    def take_step(self, num_blocks: int, num_sequences: int) -> None:
        """Takes the blocks of a decode step, with room for one of each sequence."""
        self.make_room(num_blocks)
        self.make_room(num_sequences)
        self.take(num_blocks)

    def take_steps(self, decoding: DecodeSet, num_steps: int) -> None:
        """Takes the blocks of a run of decode steps but its first, as if step by step."""
        size = decoding.size
        done, taken = 1, decoding.blocks_for_step()
        while done < num_steps:
            if self._available >= size:
                # Room needs no making before the last of these.
                within = taken + self._available - size
                until = decoding.steps_within(within, num_steps - 1) + 1
                needed = decoding.blocks_needed(until)
                self.take(needed - taken)
            else:
                until = done + 1
                needed = decoding.blocks_needed(until)
                self.take_step(needed - taken, size)
            done, taken = until, needed

    def steps_without_eviction(self, decoding: DecodeSet, num_steps: int) -> int:
        """Returns how many of the coming decode steps, at least one, are certain to evict nothing.

        The first step's blocks are taken already, and room was made for it.
        """
        spare = self._available - decoding.size
        return decoding.steps_within(max(spare, 0) + decoding.blocks_for_step(), num_steps)

    def give_back(self, num_blocks: int) -> None:
        """Frees blocks that were a request's own."""
        self.free_blocks += num_blocks
        self._available += num_blocks

    def make_room(self, num_blocks: int) -> None:
        """Evicts ``num_blocks`` or more, as far as there are, unless so many hold nothing."""
        if self._available < num_blocks:
            self._evict(num_blocks)

    def flush(self) -> None:
        """Forgets all that no request holds."""
        self.make_room(self.free_blocks)

    def _evict(self, num_blocks: int) -> None:
        leaves = self._leaves
        while num_blocks > 0 and leaves:
            time, number, node = heappop(leaves)
            if not self._is_leaf(node) or time != node.time or number != node.number:
                continue
            parent = node.parent
            assert parent is not None
            del parent.children[node.key]
            node.is_cached = False
            if self.watcher is not None:
                self.watcher.evicted(node.units, 0, len(node.units))
            self._num_nodes -= 1
            self._available += node.blocks
            num_blocks -= node.blocks
            self._offer(parent)

    def _is_leaf(self, node: RadixNode) -> bool:
        return node.is_cached and not node.locks and not node.children and node is not self.root

    def _offer(self, node: RadixNode) -> None:
        """Notes a node that is an evictable leaf now, or again."""
        if node.locks or node.children or node.parent is None:
            return
        heappush(self._leaves, (node.time, node.number, node))
        if len(self._leaves) > 4 * self._num_nodes + _FEW_ENTRIES:
            leaves = dict.fromkeys(n for _, _, n in self._leaves if self._is_leaf(n))
            self._leaves = [(n.time, n.number, n) for n in leaves]
            heapify(self._leaves)

    def check(self) -> None:
        """Raises AssertionError unless every block is free, in the tree or held, exactly once."""
        evictable = 0
        offered = {n for t, i, n in self._leaves if (t, i) == (n.time, n.number)}
        stack = [self.root]
        while stack:
            node = stack.pop()
            for key, child in node.children.items():
                assert (child.parent, child.key) == (node, key), "a node is in the wrong place"
                assert child.locks <= node.locks or node is self.root, "a held path has a gap"
                units = len(child.units) * self.blocks_per_unit
                assert child.is_cached, "an evicted node is in the tree"
                assert child.blocks == units + child.tail > 0, "a node has the wrong size"
                evictable += 0 if child.locks else child.blocks
                assert not self._is_leaf(child) or child in offered, "a leaf cannot be evicted"
                stack.append(child)
        assert self._available >= 0, "more blocks are out than there are"
        assert self.free_blocks == self._available + evictable, "free blocks do not add up"
        assert self.free_blocks <= self.num_blocks, "more blocks than there are"


def _num_shared(held: list[int], units: list[int], start: int, stop: int) -> int:
    """Returns how many leading units of ``held`` are ``units[start:stop]``'s too; at least one.

    Units are chained: where two agree, all before them do.
    """
    low, high = 1, min(len(held), stop - start)
    while low < high:
        middle = (low + high + 1) // 2
        if held[middle - 1] == units[start + middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
