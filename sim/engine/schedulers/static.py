"""Static batches, as served before continuous batching: the baseline that its gain is measured by.

The rules (``docs/static-batching.md``; Orca, OSDI 2022, section 3, describes the same):

- When the engine is free, a batch is formed from what is waiting then, in order of arrival: up to
  ``max_num_seqs`` requests. Nobody enters while it runs, and it waits for nobody.
- Prompts are padded to the longest of the batch. Prompts together longer than
  ``max_num_batched_tokens`` are computed in several steps, all slots equally far.
- There is no paging: every slot holds blocks for the padded prompt and the longest answer of the
  batch, from the first step to the last. As many requests go into a batch as so fit the pool.
- Every slot computes until the longest answer is done, also those that have all their tokens. A
  slot is not refilled. Answers are streamed: a request ends with its own last token.
- No prefix is found again.
"""

from __future__ import annotations

from collections import deque

from dynosim.sim.engine.decode_set import DecodeSet
from dynosim.sim.engine.holds import BATCH
from dynosim.sim.engine.inbox import UNBOUNDED_STEPS
from dynosim.sim.engine.kv_cache import KvCache
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.schedulers.base import Scheduler, StepByStep
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.waiting_queue import drop

POLICIES = ("fcfs",)


class Slots(DecodeSet):
    """The slots of one static batch: they need no more blocks, and compute on when done."""

    __slots__ = ()

    def idle(self, seq: Sequence) -> None:
        """Keeps the slot of a finished sequence computing."""
        self.width += 1
        self.context_tokens += seq.computed

    def clear(self) -> None:
        """Ends the batch; all of its sequences have finished."""
        self.width = self.context_tokens = 0

    def blocks_for_step(self) -> int:
        return 0

    def blocks_needed(self, num_steps: int) -> int:
        return 0

    def blocks_behind_first(self, num_steps: int) -> int:
        return 0

    def steps_within(self, num_blocks: int, at_most: int) -> int:
        return at_most


class StaticScheduler(StepByStep):
    """Forms one batch after the other; ``running`` are its requests that want more tokens."""

    __slots__ = (
        "_limits",
        "_log",
        "_order",
        "_reserved_blocks",
        "_slice_tokens",
        "_slots",
        "chunks",
        "decodes_pause",
        "decoding",
        "held_by",
        "kv",
        "may_overtake",
        "most_steps",
        "prefilling",
        "running",
        "waiting",
    )

    def __init__(self, limits: EngineLimits, kv: KvCache, log: StepLog) -> None:
        self.kv = kv
        self.running: dict[int, Sequence] = {}
        self.prefilling: list[Sequence] = []
        self._slots = Slots(limits.block_size)
        self.decodes_pause = False
        self.decoding: DecodeSet = self._slots
        self.chunks: list[tuple[Sequence, int]] = []
        self.waiting: deque[Sequence] = deque()
        self.may_overtake = False
        self.held_by = BATCH
        self._limits = limits
        self._log = log
        self.most_steps = UNBOUNDED_STEPS
        self._order = 0
        self._reserved_blocks = 0
        self._slice_tokens = 0

    def schedule(self, now_s: float) -> bool:
        """Forms the next batch when the last one is over; returns False, as nobody is preempted."""
        if self.waiting and not self.running:
            self._start_batch(now_s)
        self.chunks.clear()
        for seq in self.prefilling:
            self.chunks.append((seq, min(seq.target - seq.computed, self._slice_tokens)))
        return False

    def _start_batch(self, now_s: float) -> None:
        batch, prompt_tokens, slot_blocks = self._next_batch()
        self._reserved_blocks = len(batch) * slot_blocks
        self.kv.take(self._reserved_blocks)
        self._slice_tokens = self._limits.max_num_batched_tokens // len(batch)
        for seq in batch:
            self.waiting.popleft()
            seq.scheduled_s = now_s
            seq.target = prompt_tokens
            seq.blocks = slot_blocks
            seq.order = self._order
            self._order += 1
            self.running[seq.order] = seq
            self.prefilling.append(seq)

    def _next_batch(self) -> tuple[list[Sequence], int, int]:
        """Returns the requests of the next batch, their padded prompt, and blocks per slot."""
        limits = self._limits
        most = min(limits.max_num_seqs, limits.max_num_batched_tokens)
        batch: list[Sequence] = []
        prompt_tokens = output_tokens = slot_blocks = 0
        for seq in self.waiting:
            prompt = max(prompt_tokens, seq.prompt_tokens)
            output = max(output_tokens, seq.output_tokens)
            # The last token is sampled but never stored.
            blocks = -(-(prompt + output - 1) // limits.block_size)
            if len(batch) == most or (len(batch) + 1) * blocks > self.kv.num_blocks:
                break
            batch.append(seq)
            prompt_tokens, output_tokens, slot_blocks = prompt, output, blocks
        return batch, prompt_tokens, slot_blocks

    def abort(self, seq: Sequence) -> bool:
        """Lets go of a sequence that nobody wants any more; its slot computes on."""
        if self.running.get(seq.order) is not seq:
            return drop(self.waiting, seq)
        if seq.is_decoding:
            self.decoding.leave(seq)
        else:
            self.prefilling.remove(seq)
        del self.running[seq.order]
        self._vacate(seq)
        return True

    def finish(self, seq: Sequence) -> None:
        """Takes note that a request has all its tokens; with the last one, the batch ends."""
        del self.running[seq.order]
        self._log.stint(seq.index, seq.first_step, self._log.num_steps)
        self._vacate(seq)

    def _vacate(self, seq: Sequence) -> None:
        if self.running:
            self._slots.idle(seq)
        else:
            self._slots.clear()
            self.kv.release([], 0, self._reserved_blocks)


def make(limits: EngineLimits, num_blocks: int, blocks_per_unit: int, log: StepLog) -> Scheduler:
    """Returns the scheduler of static batches over a pool of ``num_blocks``."""
    return StaticScheduler(limits, KvCache(num_blocks, blocks_per_unit), log)
