"""The sequences that generate one token every step, with every sum that a leap needs."""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from itertools import accumulate

from dynosim.sim.engine.sequence import Sequence


class DecodeSet:
    """Decoding sequences, advanced together; all queries cost O(1) in their number.

    ``steps`` counts decode steps so far. A step computes ``width`` sequences: the ``size`` that get
    a token, and in a static batch also those that have all of theirs. ``context_tokens`` is their
    summed number of computed tokens. Where each sequence next needs a KV block is kept as a ring
    over the block size: a sequence that joins at step ``j`` with ``c`` computed tokens crosses a
    block boundary at every step ``s`` with ``(c + s - j) % block_size == 0``. Sets that need other
    blocks have their own ``blocks_for_step``, ``blocks_needed`` and ``blocks_behind_first``.
    """

    __slots__ = (
        "_crossings",
        "_due",
        "_finish_steps",
        "block_size",
        "context_tokens",
        "size",
        "steps",
        "width",
    )

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.size = 0
        self.width = 0
        self.steps = 0
        self.context_tokens = 0
        self._crossings = [0] * block_size
        self._finish_steps: list[int] = []
        self._due: dict[int, list[Sequence]] = {}

    def join(self, seq: Sequence) -> None:
        """Adds a sequence that has just sampled a token and wants more."""
        steps = self.steps
        seq.is_decoding = True
        seq.join_step = steps
        self.size += 1
        self.width += 1
        self.context_tokens += seq.computed
        self._crossings[(steps - seq.computed) % self.block_size] += 1
        self._end_at(steps + seq.output_tokens - seq.emitted, seq)

    def _end_at(self, finish: int, seq: Sequence) -> None:
        due = self._due.get(finish)
        if due is None:
            self._due[finish] = [seq]
            heappush(self._finish_steps, finish)
        else:
            due.append(seq)

    def leave(self, seq: Sequence) -> None:
        """Removes a sequence before its end and brings its own counts up to date."""
        finish = seq.join_step + seq.output_tokens - seq.emitted
        self._due[finish].remove(seq)
        self._settle(seq)

    def _settle(self, seq: Sequence) -> None:
        ran = self.steps - seq.join_step
        self._crossings[(seq.join_step - seq.computed) % self.block_size] -= 1
        seq.computed += ran
        seq.emitted += ran
        seq.blocks = -(-seq.computed // self.block_size)
        seq.is_decoding = False
        self.size -= 1
        self.width -= 1
        self.context_tokens -= seq.computed

    def longest_beyond_mean(self) -> float:
        """Returns the tokens by which the longest context exceeds the mean; looks at every one."""
        longest = max(seq.computed - seq.join_step for due in self._due.values() for seq in due)
        return longest + self.steps - self.context_tokens / self.width

    def held_blocks(self, seq: Sequence, has_next: bool) -> int:
        """Returns the KV blocks of a sequence, with those of the coming step if it has them."""
        return -(-(seq.computed + self.steps - seq.join_step + has_next) // self.block_size)

    def missing_blocks(self, seq: Sequence) -> int:
        """Returns the KV blocks that the sequence needs for the coming step."""
        return int((seq.computed + self.steps - seq.join_step) % self.block_size == 0)

    def emitted(self, seq: Sequence) -> int:
        """Returns how many tokens a decoding sequence has so far."""
        return seq.emitted + self.steps - seq.join_step

    def blocks_for_step(self) -> int:
        """Returns the KV blocks that the coming step needs."""
        return self._crossings[self.steps % self.block_size]

    def blocks_behind_first(self, num_steps: int) -> int:
        """Returns the KV blocks that the next ``num_steps`` steps but the first need together."""
        size = self.block_size
        start = self.steps % size + 1
        stop = start + num_steps - 1
        if stop <= size:
            return sum(self._crossings[start:stop])
        return self.blocks_needed(num_steps) - self.blocks_for_step()

    def blocks_needed(self, num_steps: int) -> int:
        """Returns the KV blocks that the next ``num_steps`` steps need together."""
        size = self.block_size
        ring = self._crossings
        first = self.steps % size
        last = first + num_steps
        if last <= size:
            return sum(ring[first:last])
        cycles, rest = divmod(last - size, size)
        return sum(ring[first:]) + cycles * self.size + sum(ring[:rest])

    def steps_within(self, num_blocks: int, at_most: int) -> int:
        """Returns the largest number of steps up to ``at_most`` that ``num_blocks`` allow."""
        if self.size * (at_most // self.block_size + 1) <= num_blocks:
            return at_most
        if self.blocks_needed(at_most) <= num_blocks:
            return at_most
        # Once around the ring every sequence needs a block; then as far as the rest of them lasts.
        cycles, left = divmod(num_blocks, self.size)
        ring = self._crossings
        first = self.steps % self.block_size
        coming = min(at_most - cycles * self.block_size, self.block_size)
        needs = ring[first : first + coming]
        needs += ring[: coming - len(needs)]
        return cycles * self.block_size + bisect_right(list(accumulate(needs)), left)

    def steps_to_finish(self) -> int:
        """Returns the steps until the next sequence ends, or one that has left would have ended."""
        return self._finish_steps[0] - self.steps if self._finish_steps else _NEVER

    def advance(self, num_steps: int) -> list[Sequence]:
        """Runs ``num_steps`` steps and returns the sequences that end with the last of them."""
        steps = self.steps = self.steps + num_steps
        self.context_tokens += num_steps * self.width
        finish_steps = self._finish_steps
        if finish_steps and finish_steps[0] == steps:
            heappop(finish_steps)
            finished = self._due.pop(steps)
            for seq in finished:
                self._settle(seq)
            return finished
        return _NOBODY


_NEVER = 1 << 60
_NOBODY: list[Sequence] = []
