"""Who gets how many tokens in a step, by the rules of TensorRT-LLM's in-flight batching.

The rules, as read from the PyTorch backend of 1.3.0rc (``docs/trtllm-rules.md`` names the source of
each and the differences that remain):

- A *capacity* policy says who may run. ``guaranteed_no_evict``: a request enters only when the
  blocks for its prompt and all its answer are free, less what running requests may still take.
  ``max_utilization``: it enters when the blocks for its prompt are free; when running requests run
  out of blocks, the one that arrived last is paused and computed again, in its old place.
- A *micro batch* of ``max_num_batched_tokens`` is cut from those: generation first, one token each,
  then prompts in order of arrival. A prompt that does not fit is cut to whole KV blocks, and a
  shorter one behind it may still fit.
- All blocks of a prompt are taken with its first chunk. They can be found by others once the
  whole prompt is computed; a request whose next block another one is computing waits for it.
- While others generate, prompts may be held back for a few steps: to share one
  (``batch_wait_timeout_iters``), or to run beside those of other ranks (``held_steps``).
- Of a prompt that is cached whole only the last token is computed, in a copy of the last block.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dynosim.sim.engine.batch_wait import BatchWait
from dynosim.sim.engine.holds import BLOCKS, PREFIX, SLOTS, TOKENS
from dynosim.sim.engine.inbox import UNBOUNDED_STEPS
from dynosim.sim.engine.kv_cache import KvCache
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.schedulers.base import Scheduler, StepByStep, hand_over
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.speculative_decode_set import decode_set
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.stretch import Chain
from dynosim.sim.engine.waiting_queue import drop

POLICIES = ("guaranteed_no_evict", "max_utilization")


class _Prefix(NamedTuple):
    """What a request finds cached: tokens, copies of units, and blocks of them that are in use."""

    tokens: int
    copies: Chain
    num_units: int
    blocks_in_use: int


class TrtllmScheduler(StepByStep):
    """Forms the batch of each step; ``running`` is keyed by order of arrival.

    ``waiting`` holds the requests that have not entered and those that are paused, in order of
    arrival.
    """

    __slots__ = (
        "_block_size",
        "_chunk_unit",
        "_is_async",
        "_is_guaranteed",
        "_limits",
        "_log",
        "_max_seqs",
        "_query_tokens",
        "_slots_ahead",
        "_unit_tokens",
        "_unpledged",
        "_wait",
        "chunks",
        "decodes_pause",
        "decoding",
        "held_by",
        "held_steps",
        "kv",
        "loaded",
        "may_overtake",
        "most_steps",
        "num_preemptions",
        "prefilling",
        "running",
        "waiting",
    )

    def __init__(self, limits: EngineLimits, kv: KvCache, log: StepLog) -> None:
        self.kv = kv
        self.running: dict[int, Sequence] = {}
        self.prefilling: list[Sequence] = []
        self.decodes_pause = False
        self.decoding = decode_set(limits, kv.num_blocks, log)
        self.chunks: list[tuple[Sequence, int]] = []
        self.waiting: deque[Sequence] = deque()
        self.loaded: deque[Sequence] = deque()
        self.may_overtake = False
        self.held_by = BLOCKS
        self.most_steps = UNBOUNDED_STEPS
        self.held_steps = 0
        self.num_preemptions = 0
        self._limits = limits
        self._log = log
        self._is_async = limits.async_scheduling
        self._is_guaranteed = limits.scheduling_policy == "guaranteed_no_evict"
        self._block_size = limits.block_size
        self._unit_tokens = limits.block_size * kv.blocks_per_unit
        self._query_tokens = limits.query_tokens
        drafting = limits.drafting
        self._slots_ahead = drafting.num_tokens + drafting.lookahead_tokens if drafting else 0
        # More sequences than tokens in a step could never all generate.
        most = limits.max_num_batched_tokens // self._query_tokens
        self._max_seqs = min(limits.max_num_seqs, most)
        self._chunk_unit = min(limits.block_size, limits.max_num_batched_tokens)
        least = limits.batch_wait_max_tokens_ratio * limits.max_num_batched_tokens
        self._wait = BatchWait(limits.batch_wait_timeout_iters, least)
        # Blocks that are free and that no running request may still need: constant while all
        # generate.
        self._unpledged = kv.num_blocks

    def schedule(self, now_s: float) -> bool:
        """Forms the batch of the next step; returns whether the one after it may differ at once.

        That is so where anyone was paused for it, or those who wait may find a prompt from now on.
        """
        computed = self.chunks
        self.chunks = []
        if not self._is_async:
            self._store_prompts(computed)
        self.may_overtake = False
        if self.loaded:
            self._enter_loaded(now_s)
        decoding = self.decoding
        kv = self.kv
        blocks = decoding.blocks_for_step()
        paused = blocks > kv.free_blocks
        while blocks > kv.free_blocks:
            self._pause(self._victim())
            blocks = decoding.blocks_for_step()
        kv.take(blocks)
        budget = self._budget()
        self.most_steps = self._steps_to_hold(budget) or UNBOUNDED_STEPS
        if self.most_steps < UNBOUNDED_STEPS:
            # Who arrives now may make the batch large enough.
            self.may_overtake = True
            return paused
        if self.prefilling:
            budget = self._continue_prompts(budget)
        if self.waiting:
            self.held_by = BLOCKS
            if not paused:
                self._admit(budget, now_s)
        if self._is_async and computed:
            self._store_prompts(computed)
            return paused or bool(self.waiting)
        return paused

    def _budget(self) -> int:
        return self._limits.max_num_batched_tokens - self.decoding.size * self._query_tokens

    def _steps_to_hold(self, budget: int) -> int:
        """Returns for how many steps prompts that could run are held back; 0: they are not."""
        if self.held_steps:
            return self.held_steps
        if not self._wait.is_on or not self.decoding.size:
            return 0
        tokens = self._ready_tokens(budget)
        if not tokens:
            return 0
        decodes = self.decoding.size * self._query_tokens
        return self._wait.steps_to_wait(self._log.num_steps, tokens + decodes)

    def has_prompt(self) -> bool:
        """Whether a prompt could run in the next step."""
        return self._ready_tokens(self._budget()) > 0

    def _ready_tokens(self, budget: int) -> int:
        """Returns the tokens of the prompts that could run in a step, with what is cached."""
        tokens = sum(seq.target for seq in self.prefilling)
        slots = self._max_seqs - len(self.running)
        blocks = self._available()
        for seq in self.waiting:
            prefix = self._prefix(seq, self._num_cached(seq))
            blocks -= self._blocks_wanted(seq, prefix)
            chunk = self._chunk(seq.target - prefix.tokens, budget)
            if slots <= 0 or blocks < 0 or not chunk:
                break
            slots -= 1
            budget -= chunk
            tokens += seq.target
        return tokens

    def _continue_prompts(self, budget: int) -> int:
        """Gives prompts in progress their next chunks; returns the budget left."""
        for seq in self.prefilling:
            chunk = self._chunk(seq.target - seq.computed, budget)
            if chunk:
                self.chunks.append((seq, chunk))
                budget -= chunk
        return budget

    def _chunk(self, tokens: int, budget: int) -> int:
        """Returns how many of a prompt's ``tokens`` the step computes: all, or whole blocks."""
        if tokens <= budget:
            return tokens
        if not self._limits.enable_chunked_prefill:
            return 0
        return budget - budget % self._chunk_unit

    # --- waiting requests ---------------------------------------------------------------------

    def _admit(self, budget: int, now_s: float) -> None:
        """Lets waiting requests in, in order of arrival, until one finds too few blocks."""
        waiting = self.waiting
        awaited = self._awaited_units()
        claimed = position = 0
        while budget and position < len(waiting) and position + len(self.running) < self._max_seqs:
            seq = waiting[position]
            num_cached = self._num_cached(seq)
            if self._waits_for_prefix(seq, num_cached, awaited):
                position += 1
                continue
            prefix = self._prefix(seq, num_cached)
            blocks = self._blocks_wanted(seq, prefix)
            if blocks + claimed > self._available():
                return
            chunk = self._chunk(seq.target - prefix.tokens, budget)
            if chunk:
                del waiting[position]
                self._enter(seq, prefix, now_s)
                self.chunks.append((seq, chunk))
                budget -= chunk
            elif self._limits.enable_chunked_prefill:
                # There is room for it, but the step has too few tokens left.
                claimed += blocks
                position += 1
            else:
                self.held_by = TOKENS
                return
        self.may_overtake = 0 < position == len(waiting)
        if not budget or claimed:
            self.held_by = TOKENS
        else:
            self.held_by = PREFIX if self.may_overtake else SLOTS

    def _num_cached(self, seq: Sequence) -> int:
        """Returns how many leading units of the request are cached."""
        units = seq.units
        if not units or not self._limits.enable_prefix_caching:
            return 0
        return self.kv.hits(units, len(units))

    def _awaited_units(self) -> set[int]:
        """Returns the first unit that is not yet cached of each prompt in progress."""
        if not self._limits.enable_prefix_caching:
            return set()
        firsts = [(seq.units, self._num_cached(seq)) for seq in self.prefilling]
        return {unit for units, first in firsts for unit in units[first : first + 1]}

    def _waits_for_prefix(self, seq: Sequence, num_cached: int, awaited: set[int]) -> bool:
        """Whether another request is computing what this one needs next; else awaits this one's."""
        if not seq.units or not self._limits.enable_prefix_caching:
            return False
        new = seq.units[num_cached : num_cached + 1]
        if not awaited.isdisjoint(new):
            return True
        awaited.update(new)
        return False

    def _prefix(self, seq: Sequence, num_cached: int) -> _Prefix:
        """Returns what a request may reuse of its ``num_cached`` units."""
        if not num_cached:
            return _Prefix(0, [], 0, 0)
        kv = self.kv
        # The last token is always computed: its logits are needed.
        num_units = min(num_cached, (seq.target - 1) // self._unit_tokens)
        copies = kv.find(seq.units, num_units)
        in_use = num_units * kv.blocks_per_unit - kv.evictable(copies)
        is_whole_prompt = num_cached * self._unit_tokens == seq.target
        tokens = seq.target - 1 if is_whole_prompt else num_units * self._unit_tokens
        return _Prefix(tokens, copies, num_units, in_use)

    def _blocks_wanted(self, seq: Sequence, prefix: _Prefix) -> int:
        """Returns the blocks that must be free for a request to enter.

        Cached blocks that nobody uses are free as well, so only those in use are spared.
        """
        blocks = self._to_completion(seq) if self._is_guaranteed else self._for_prompt(seq)
        return blocks - prefix.blocks_in_use

    def _available(self) -> int:
        return self._unpledged if self._is_guaranteed else self.kv.free_blocks

    def _for_prompt(self, seq: Sequence) -> int:
        return -(-seq.target // self._block_size)

    def _to_completion(self, seq: Sequence) -> int:
        """Returns the blocks of a prompt and all its answer, the last token included.

        That one is never stored: a request that fits the pool by just that much may use all of it.
        """
        tokens = seq.prompt_tokens + seq.output_tokens + self._slots_ahead
        blocks = -(-tokens // self._block_size)
        return min(blocks, self.kv.num_blocks)

    def _enter(self, seq: Sequence, prefix: _Prefix, now_s: float) -> None:
        """Takes all blocks of the request's prompt, and runs it."""
        self._take_blocks(seq, prefix)
        if seq.scheduled_s < 0.0:
            seq.scheduled_s = now_s
            seq.cached_tokens = prefix.tokens
        seq.order = seq.index
        self.running[seq.order] = seq
        self.prefilling.append(seq)

    def _take_blocks(self, seq: Sequence, prefix: _Prefix) -> None:
        kv = self.kv
        self._unpledged -= self._to_completion(seq) - prefix.blocks_in_use
        kv.hold(prefix.copies)
        seq.held = prefix.copies
        seq.named = prefix.num_units
        seq.computed = prefix.tokens
        seq.blocks = self._for_prompt(seq)
        kv.take(seq.blocks - prefix.num_units * kv.blocks_per_unit)

    # --- prompts that another engine computes -------------------------------------------------

    def reserve(self, seq: Sequence, num_staged: int) -> bool:
        """Takes the blocks of a prompt, less what is cached; returns whether there was room."""
        if self.waiting or len(self.running) + num_staged >= self._max_seqs:
            return False
        prefix = self._prefix(seq, self._num_cached(seq))
        if self._blocks_wanted(seq, prefix) > self._available():
            return False
        self._take_blocks(seq, prefix)
        return True

    def _enter_loaded(self, now_s: float) -> None:
        """Lets those in whose KV and first token have come: they generate from now on."""
        loaded = self.loaded
        while loaded and len(self.running) < self._max_seqs:
            seq = loaded.popleft()
            seq.order = seq.index
            self.running[seq.order] = seq
            hand_over(seq, self.decoding, self._log, now_s)
            self._store(seq, seq.target)

    # --- what can be found --------------------------------------------------------------------

    def _store_prompts(self, chunks: list[tuple[Sequence, int]]) -> None:
        """Lets others find the prompts that were completed with ``chunks``."""
        for seq, _ in chunks:
            if seq.is_decoding:
                self._store(seq, seq.target)

    def _store(self, seq: Sequence, tokens: int) -> None:
        """Lets others find the units of a request's first ``tokens``."""
        units = seq.units
        if seq.named == len(units) or not self._limits.enable_prefix_caching:
            return
        complete = min(tokens // self._unit_tokens, len(units))
        if complete > seq.named:
            seq.held = self.kv.register(units, seq.held, seq.named, complete)
            seq.named = complete

    # --- leaving ------------------------------------------------------------------------------

    def finish(self, seq: Sequence) -> None:
        """Lets go of a sequence that has all its tokens."""
        del self.running[seq.order]
        self._store(seq, seq.computed)
        if not seq.keeps_blocks:
            self.free(seq)
        self._log.stint(seq.index, seq.first_step, self._log.num_steps)

    def _victim(self) -> Sequence:
        """Returns the request that arrived last, of those that have tokens to come."""
        return next(
            self.running[order]
            for order in sorted(self.running, reverse=True)
            if not self.running[order].has_ended
        )

    def abort(self, seq: Sequence) -> bool:
        """Lets go of a sequence that nobody wants any more; returns whether it was here."""
        if self.running.get(seq.order) is not seq:
            return drop(self.waiting, seq)
        del self.running[seq.order]
        if seq.is_decoding:
            self.decoding.leave(seq)
        else:
            self.prefilling.remove(seq)
        self.free(seq)
        return True

    def _pause(self, seq: Sequence) -> None:
        """Takes all blocks from a running request and puts it back in its old place."""
        del self.running[seq.order]
        if seq.is_decoding:
            self.decoding.leave(seq)
            self._log.stint(seq.index, seq.first_step, self._log.num_steps)
        else:
            self.prefilling.remove(seq)
        self._name_answer(seq)
        self._store(seq, seq.computed)
        self.free(seq)
        seq.target = seq.prompt_tokens + seq.emitted
        seq.computed = seq.blocks = seq.named = 0
        seq.preemptions += 1
        self.num_preemptions += 1
        self._put_back(seq)

    def _name_answer(self, seq: Sequence) -> None:
        """Lets a paused sequence find again what it generated beyond its prompt's units."""
        if not self._limits.enable_prefix_caching:
            return
        extra = seq.computed // self._unit_tokens - len(seq.units)
        if extra > 0:
            seq.units = seq.units + self.kv.private_units(extra)

    def _put_back(self, seq: Sequence) -> None:
        waiting = self.waiting
        position = 0
        while position < len(waiting) and waiting[position].index < seq.index:
            position += 1
        waiting.insert(position, seq)

    def free(self, seq: Sequence) -> None:
        """Frees a request's blocks, the last one first; a partial one keeps its place in turn."""
        kv = self.kv
        free = kv.free_blocks
        num_cached = seq.blocks if self._limits.enable_prefix_caching else 0
        kv.release(seq.held, num_cached, seq.blocks - num_cached)
        self._unpledged += kv.free_blocks - free + self._to_completion(seq) - seq.blocks


def make(limits: EngineLimits, num_blocks: int, blocks_per_unit: int, log: StepLog) -> Scheduler:
    """Returns TensorRT-LLM's scheduler over a pool of ``num_blocks``."""
    return TrtllmScheduler(limits, KvCache(num_blocks, blocks_per_unit), log)
