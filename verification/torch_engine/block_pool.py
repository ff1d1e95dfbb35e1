"""Paged KV memory: which blocks are free, and which hold a prefix that can be found again.

The rules are those of :mod:`dynosim.sim.engine.kv_cache`, with every block by its number: free
blocks that hold nothing findable are taken first, then the one freed longest ago; requests free
their last block first; of equal blocks the oldest is found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

ROOT = -1
"""The name of the empty prefix."""


class BlockPool:
    """``num_blocks`` blocks of ``block_size`` tokens; without ``caches`` nothing is ever found."""

    def __init__(self, num_blocks: int, block_size: int, *, caches: bool) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.caches = caches
        self._holders = [0] * num_blocks
        self._unnamed = deque(range(num_blocks))
        # Dictionaries keep the order in which keys came: the first was freed, or computed, first.
        self._cached: dict[int, None] = {}
        self._copies: dict[int, dict[int, None]] = {}
        self._name_of: dict[int, int] = {}
        self._names: dict[tuple[int, tuple[int, ...]], int] = {}

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, whatever they cache."""
        return len(self._unnamed) + len(self._cached)

    def find(self, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """Returns cached blocks of a prefix of ``tokens``, and their names.

        The last token is never found: it is computed again for its logits.
        """
        blocks: list[int] = []
        names: list[int] = []
        size = self.block_size
        for end in range(size, len(tokens), size):
            parent = names[-1] if names else ROOT
            name = self._names.get((parent, tuple(tokens[end - size : end])))
            copies = self._copies.get(ROOT if name is None else name)
            if name is None or not copies:
                break
            blocks.append(next(iter(copies)))
            names.append(name)
        return blocks, names

    def num_unheld(self, blocks: Sequence[int]) -> int:
        """Returns how many of these blocks count as free now."""
        return sum(not self._holders[block] for block in blocks)

    def hold(self, blocks: Sequence[int]) -> None:
        """Takes blocks that were found for one more request."""
        for block in blocks:
            self._cached.pop(block, None)
            self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """Returns so many free blocks, which forget what they cached."""
        taken = [self._unnamed.popleft() if self._unnamed else self._evict() for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
        return taken

    def _evict(self) -> int:
        block = next(iter(self._cached))
        del self._cached[block]
        self._forget(block)
        return block

    def _forget(self, block: int) -> None:
        name = self._name_of.pop(block)
        copies = self._copies[name]
        del copies[block]
        if not copies:
            del self._copies[name]

    def name(
        self, tokens: Sequence[int], known: int, blocks: Sequence[int], names: list[int]
    ) -> None:
        """Lets others find the full blocks of the first ``known`` tokens.

        ``names`` are those of the first blocks, and grow to all of them.
        """
        if not self.caches:
            return
        size = self.block_size
        for place in range(len(names), known // size):
            parent = names[-1] if names else ROOT
            key = parent, tuple(tokens[place * size : (place + 1) * size])
            name = self._names.setdefault(key, len(self._names))
            names.append(name)
            self._name_of[blocks[place]] = name
            self._copies.setdefault(name, {})[blocks[place]] = None

    def free(self, blocks: Sequence[int]) -> None:
        """Lets go of a request's blocks; the last is the first to be taken again."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if block in self._name_of:
                self._cached[block] = None
            else:
                self._unnamed.append(block)

    def forget_all(self) -> None:
        """Forgets every prefix; nobody holds a block."""
        assert self.num_free == self.num_blocks, "a request holds blocks"
        self._unnamed.extend(self._cached)
        for index in (self._cached, self._copies, self._name_of, self._names):
            index.clear()
