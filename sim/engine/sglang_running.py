"""What SGLang's running requests hold, and how they leave: done, retracted, or not yet known to be.

``schedulers/sglang.py`` has the rules, and forms the batches.
"""

from __future__ import annotations

from collections import deque

from dynosim.sim.engine.inbox import Inbox
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.radix_cache import Lease, RadixCache
from dynosim.sim.engine.schedulers.base import StepByStep
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.sglang_rules import sglang_rules
from dynosim.sim.engine.speculative_decode_set import decode_set
from dynosim.sim.engine.speculative_output_estimate import output_estimate
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.waiting_queue import drop


class SglangRunning(StepByStep):
    """The requests of one engine, in the order in which they entered or were put.

    ``prefilling`` holds the sequences of the batch's chunks, and the one whose prompt is cut.
    """

    def __init__(self, limits: EngineLimits, kv: RadixCache, log: StepLog) -> None:
        self.kv = kv
        self.running: dict[int, Sequence] = {}
        self.prefilling: list[Sequence] = []
        self.decoding = decode_set(limits, kv.num_blocks, log)
        self.chunks: list[tuple[Sequence, int]] = []
        self._queue: deque[Sequence] = deque()
        self.loaded: deque[Sequence] = deque()
        self._log = log
        self._rules = rules = sglang_rules()
        self._estimate = output_estimate(rules, limits.schedule_conservativeness, self.decoding)
        self._block_size = limits.block_size
        self._unit_tokens = limits.block_size * kv.blocks_per_unit
        # What requests hold of the tree, by index; kept while they are retracted.
        self._leases: dict[int, Lease] = {}
        self._chunked: Sequence | None = None
        # Requests that ended in the last decode steps: noticed when the next one is formed.
        self._num_gone = 0
        # How many of the step's chunks are in the tree.
        self._num_cached = 0
        self._is_async = limits.async_scheduling
        # Whose prompts the last step completed, while its results are not known.
        self._unsettled: list[Sequence] = []
        # Sequences that have ended and take part in the step, and their context before it.
        self._trailing = (0, 0)

    @property
    def _num_unseen(self) -> int:
        """How many have ended in the last step, when that is not known yet."""
        return len(self.running) - self.decoding.size - len(self.prefilling)

    def _trail(self) -> bool:
        """Lets those whose ends are not known yet take part; returns whether there are any."""
        if not self._num_unseen:
            return False
        context_tokens = sum(seq.computed for seq in self._unseen())
        self._trailing = self._num_unseen, context_tokens
        self.decoding.width += self._num_unseen
        self.decoding.context_tokens += context_tokens
        return True

    def _unseen(self) -> list[Sequence]:
        return [seq for seq in self.running.values() if seq.has_ended] if self._num_unseen else []

    def _drop_trailing(self) -> None:
        width, context_tokens = self._trailing
        if width:
            self.decoding.width -= width
            # The step has added one token each.
            self.decoding.context_tokens -= context_tokens + width
            self._trailing = (0, 0)

    def _cache_chunks(self, stop: int) -> None:
        """Puts computed blocks into the tree: those of the last step's chunks before ``stop``."""
        for seq, _ in self.chunks[self._num_cached : stop]:
            self._cache(seq)
        self._num_cached = stop

    def _cache(self, seq: Sequence) -> None:
        units = seq.units
        num_units = min(seq.computed // self._unit_tokens, len(units))
        num_blocks = seq.computed // self._block_size
        if num_units < len(units):
            # Of a unit that is computed in part, nobody could find anything.
            num_blocks = num_units * self.kv.blocks_per_unit
        self.kv.insert(self._leases[seq.index], units, num_units, num_blocks)

    def _reorder(self, sequences: list[Sequence]) -> None:
        """Puts all running sequences in the given order."""
        for order, seq in zip(sorted(self.running), sequences, strict=True):
            seq.order = order
        self.running = {seq.order: seq for seq in sequences}

    def _retract(self) -> None:
        """Sends sequences back until the others have blocks for their next token."""
        decoding = self.decoding
        ahead = self._rules.retract_decode_steps
        while (needed := decoding.blocks_for_step()) > self.kv.free_blocks:
            self.kv.make_room(needed)
            if decoding.size == 1 and self._num_unseen:
                # Nobody knows yet that there is nothing to compute again.
                for seq in self._unseen():
                    self._leave(seq)
                continue
            # SGLang fails the last one that decodes; here the prompt that is in its way goes.
            is_in_the_way = decoding.size == 1 and self._chunked is not None
            victim = self._chunked if is_in_the_way else self._victim()
            assert victim is not None, "nobody is to blame"
            self._send_back(victim)
            self.kv.make_room(-(-ahead * decoding.size // self._block_size))
        kept = sorted((s for s in self.running.values() if s.is_decoding), key=self._least_last)
        self._reorder(kept + self._unseen() + self.prefilling)
        generated = sum(map(decoding.emitted, kept))
        allowed = sum(seq.output_tokens for seq in kept)
        ratio = min(1.0, (generated + ahead * len(kept)) / (allowed + 1))
        self._estimate.restart(ratio, decoding.steps + 1)

    def _victim(self) -> Sequence:
        """Returns who has generated least; of those the longest prompt, then the last in order."""
        decodes = (seq for seq in reversed(self.running.values()) if seq.is_decoding)
        return max(decodes, key=self._least_last)

    def _least_last(self, seq: Sequence) -> tuple[int, int]:
        """Sorts decoding sequences by tokens generated, most first, then by prompt, short first."""
        return -self.decoding.emitted(seq), seq.prompt_tokens

    def _send_back(self, seq: Sequence) -> None:
        """Sends a running sequence to the end of the queue; the tree keeps what it has."""
        del self.running[seq.order]
        if seq.is_decoding:
            self.decoding.leave(seq)
            self._estimate.remove(seq.index)
            if seq.first_step < self._log.num_steps:
                self._log.interrupt(seq.index, seq.first_step)
        else:
            self.prefilling.remove(seq)
            self._chunked = None
        self._let_go(seq)
        seq.target = seq.prompt_tokens + seq.emitted
        seq.computed = seq.blocks = 0
        seq.preemptions += 1
        self._queue.append(seq)

    def _give_up(self, seq: Sequence) -> None:
        """Lets go of a running sequence for good, before its end."""
        del self.running[seq.order]
        if seq.is_decoding:
            self.decoding.leave(seq)
            self._estimate.remove(seq.index)
            self._log.interrupt(seq.index, seq.first_step)
            self._num_gone += 1
        else:
            self.prefilling.remove(seq)
            if self._chunked is seq:
                self._chunked = None
        self._let_go(seq)
        del self._leases[seq.index]

    def _forget_waiting(self, waiting: deque[Sequence] | Inbox, seq: Sequence) -> bool:
        """Drops a sequence that waits; of one that was retracted there is an empty lease."""
        is_here = drop(waiting, seq)
        if is_here:
            self._leases.pop(seq.index, None)
        return is_here

    def _let_go(self, seq: Sequence) -> None:
        lease = self._leases[seq.index]
        self.kv.give_back(seq.blocks - lease.blocks)
        self.kv.release(lease)

    def settle(self, ended: list[Sequence]) -> None:
        """Lets go of sequences; when that comes late, the tree gets the prompts only now, too."""
        if not self._is_async:
            for seq in ended:
                self.finish(seq)
            return
        for seq in self._unsettled:
            if seq.is_decoding:
                self._cache(seq)
            elif seq.has_ended and self.running.get(seq.order) is seq:
                self._leave(seq)
        self._unsettled = []
        for seq in ended:
            if self.running.get(seq.order) is seq:
                self._leave(seq)

    def _leave(self, seq: Sequence) -> None:
        """Lets go of a sequence that ended in the last step, when the next one is formed."""
        if seq.index in self._estimate:
            self._estimate.remove(seq.index)
        self._num_gone += 1
        self._let_end(seq)

    def finish(self, seq: Sequence) -> None:
        """Lets go of a sequence that has all its tokens; the tree keeps them."""
        if seq.index in self._estimate:
            self._estimate.remove(seq.index)
            if not self.chunks:
                self._num_gone += 1
        else:
            position = next(i for i, (other, _) in enumerate(self.chunks) if other is seq)
            self._cache_chunks(position)
            self._num_cached = position + 1
        self._let_end(seq)

    def _let_end(self, seq: Sequence) -> None:
        del self.running[seq.order]
        self._cache(seq)
        if not seq.keeps_blocks:
            self.free(seq)
        self._log.stint(seq.index, seq.first_step, self._log.num_steps)

    def free(self, seq: Sequence) -> None:
        """Frees the blocks of a sequence; those in the tree stay until they are needed."""
        self._let_go(seq)
        del self._leases[seq.index]
