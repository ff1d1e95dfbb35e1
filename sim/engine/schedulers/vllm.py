"""Who gets how many tokens in a step, by the rules of vLLM's V1 scheduler.

The rules, as observed on vLLM 0.32.0 itself (``tests/parity`` replays its recorded steps;
``docs/vllm-parity.md`` says how far they agree):

- Every step spends a budget of ``max_num_batched_tokens``. Running sequences come first, in the
  order in which they entered: decodes take one token, prompts what is left of them, at most
  ``long_prefill_token_threshold`` unless the request is alone. Where the budget ends, the
  remaining sequences sit the step out.
- Then waiting requests enter while a slot of ``max_num_seqs``, budget, and KV blocks for their
  whole prompt are free, in order of arrival or priority; the first that does not fit ends it.
- When a running sequence finds no free block, the one that entered last (or has the lowest
  priority) is preempted, to be recomputed later. Nobody enters in such a step. A sequence that has
  to preempt itself ends the step for all behind it.
- The last token of a prompt is always computed, even if its block is cached.
"""

from __future__ import annotations

from collections import deque
from itertools import filterfalse, islice
from operator import attrgetter

from dynosim.sim.engine.holds import BLOCKS, SLOTS, TOKENS
from dynosim.sim.engine.inbox import UNBOUNDED_STEPS
from dynosim.sim.engine.kv_cache import KvCache
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.schedulers.base import Scheduler
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.speculative_decode_set import decode_set
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.stretch import Chain, num_units
from dynosim.sim.engine.waiting_queue import PriorityQueue, drop

POLICIES = ("fcfs", "priority")

_UNBOUNDED = 1 << 60
_HAS_ENDED = attrgetter("has_ended")


class VllmScheduler:
    """Forms the batch of each step.

    After ``schedule`` the batch is every sequence of ``decoding``, one token each, and ``chunks``
    of prompts. ``prefilling`` holds the running sequences that are not decoding, in no order.
    """

    __slots__ = (
        "_block_size",
        "_is_async",
        "_is_priority",
        "_limits",
        "_log",
        "_longest_chunk",
        "_order",
        "_query_tokens",
        "_unit_tokens",
        "_watermark",
        "chunks",
        "decodes_pause",
        "decoding",
        "held_by",
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
        self.decoding = decode_set(limits, kv.num_blocks, log)
        self.chunks: list[tuple[Sequence, int]] = []
        self.held_by = BLOCKS
        self.decodes_pause = False
        self.num_preemptions = 0
        self._limits = limits
        self._log = log
        self.most_steps = UNBOUNDED_STEPS
        self._is_priority = self.may_overtake = limits.scheduling_policy == "priority"
        self.waiting: deque[Sequence] | PriorityQueue = (
            PriorityQueue() if self._is_priority else deque()
        )
        self.loaded: deque[Sequence] = deque()
        self._is_async = limits.async_scheduling
        self._block_size = limits.block_size
        self._unit_tokens = limits.block_size * kv.blocks_per_unit
        # vLLM takes the fraction of all blocks, its null block among them.
        self._watermark = int(limits.watermark * (kv.num_blocks + 1))
        self._longest_chunk = _UNBOUNDED
        self._order = 0
        self._query_tokens = limits.query_tokens

    def schedule(self, now_s: float) -> bool:
        """Forms the batch of the next step; returns whether anyone was preempted for it.

        The batch is empty only when there is no work.
        """
        if self._limits.long_prefill_token_threshold:
            self._bound_chunks()
        kv = self.kv
        decoding = self.decoding
        self.chunks.clear()
        # Who comes first matters only where blocks or budget run out.
        blocks = decoding.blocks_for_step()
        budget = self._limits.max_num_batched_tokens - decoding.size * self._query_tokens
        preempted = False
        if self.prefilling or blocks > kv.free_blocks or budget < 0:
            budget, preempted = self._schedule_running(blocks, budget)
        elif blocks:
            kv.take(blocks)
        if self.loaded and not preempted:
            budget = self._enter_loaded(budget, now_s)
        if self.waiting:
            self.held_by = BLOCKS
            if not preempted:
                self._admit(budget, now_s)
        if preempted and not self.chunks and not decoding.size and not self._is_async:
            # The first sequence preempted itself. A step of nobody takes no time.
            return self.schedule(now_s)
        return preempted

    def _bound_chunks(self) -> None:
        is_alone = len(self.running) + len(self.waiting) == 1
        threshold = self._limits.long_prefill_token_threshold
        self._longest_chunk = _UNBOUNDED if is_alone else threshold

    # --- running sequences --------------------------------------------------------------------

    def _schedule_running(self, blocks: int, budget: int) -> tuple[int, bool]:
        """Gives running sequences their tokens; returns the budget left, and if any were preempted.

        Decodes alone would need ``blocks`` and leave ``budget``. Where all prompts run behind all
        decodes, as usual, it does not matter at whom blocks run out: victims come from the end,
        until there is enough for those who stay.
        """
        youngest = reversed(self.running.values())
        if len(self.running) > len(self.prefilling) + self.decoding.size:
            youngest = filterfalse(_HAS_ENDED, youngest)
        prompts = list(islice(youngest, len(self.prefilling)))
        if self._is_priority or budget < 0 or any([seq.is_decoding for seq in prompts]):
            return self._schedule_one_by_one()
        prompts.reverse()
        kv = self.kv
        chunks, wanted, left = self._chunks_of(prompts, budget)
        preempted = False
        while blocks + wanted > kv.free_blocks:
            preempted = True
            victim = self._victim()
            if victim.has_ended:
                self._preempt(victim, 0)
                continue
            if prompts:
                prompts.pop()
                chunks, wanted, left = self._chunks_of(prompts, budget)
            else:
                blocks -= self.decoding.missing_blocks(victim)
            if blocks + wanted <= kv.free_blocks:
                # All before it have theirs by the time it finds none.
                kv.take(blocks + wanted)
                blocks = wanted = 0
            self._preempt(victim, 0)
        kv.take(blocks + wanted)
        for seq, chunk in chunks:
            seq.blocks = -(-(seq.computed + chunk) // self._block_size)
            self._name_units(seq, chunk)
        self.chunks = chunks
        return left, preempted

    def _chunks_of(
        self, prompts: list[Sequence], budget: int
    ) -> tuple[list[tuple[Sequence, int]], int, int]:
        """Returns what each prompt gets of a budget, the blocks that takes, and the budget left."""
        chunks = []
        blocks = 0
        for seq in prompts:
            if budget <= 0:
                break
            chunk = min(seq.target - seq.computed, budget, self._longest_chunk)
            blocks += -(-(seq.computed + chunk) // self._block_size) - seq.blocks
            budget -= chunk
            chunks.append((seq, chunk))
        return chunks, blocks, budget

    def _schedule_one_by_one(self) -> tuple[int, bool]:
        """Gives tokens in running order, preempting where blocks run out."""
        kv = self.kv
        running = self.running
        budget = self._limits.max_num_batched_tokens
        given: dict[int, int] = {}
        preempted = False
        for seq in tuple(running.values()):
            if seq.order not in running or seq.has_ended:
                continue
            if budget <= 0:
                break
            if seq.is_decoding and budget < self._query_tokens:
                continue
            tokens, missing = self._wanted(seq, budget)
            while missing > kv.free_blocks and seq.order in running:
                preempted = True
                victim = self._victim()
                had = given.pop(victim.order, 0)
                budget += had
                self._preempt(victim, had)
            if seq.order not in running:
                break
            kv.take(missing)
            given[seq.order] = tokens
            budget -= tokens
            if not seq.is_decoding:
                seq.blocks += missing
                self._name_units(seq, tokens)
        self._form_batch(given)
        return budget, preempted

    def _wanted(self, seq: Sequence, budget: int) -> tuple[int, int]:
        """Returns the tokens that a running sequence would get, and the blocks it lacks."""
        if seq.is_decoding:
            return self._query_tokens, self.decoding.missing_blocks(seq)
        tokens = min(seq.target - seq.computed, budget, self._longest_chunk)
        return tokens, -(-(seq.computed + tokens) // self._block_size) - seq.blocks

    def _form_batch(self, given: dict[int, int]) -> None:
        """Turns tokens given by running order into chunks; who got none sits the step out.

        A decode that sits out catches up like a prompt with one token left.
        """
        for seq in tuple(self.running.values()):
            tokens = given.get(seq.order)
            if not seq.is_decoding:
                if tokens:
                    self.chunks.append((seq, tokens))
            elif not tokens:
                self.decoding.leave(seq)
                self._log.stint(seq.index, seq.first_step, self._log.num_steps)
                self._give_back_lookahead(seq)
                seq.target = seq.computed + 1
                self.prefilling.append(seq)

    def _give_back_lookahead(self, seq: Sequence) -> None:
        """Frees the blocks of drafts that a sequence will not verify now."""
        blocks = -(-seq.computed // self._block_size)
        if seq.blocks > blocks:
            self.kv.release([], 0, seq.blocks - blocks)
            seq.blocks = blocks

    # --- equal steps --------------------------------------------------------------------------

    def chunk_repeats(self) -> int:
        """Returns how often the step just formed is certain to be repeated.

        While one prompt takes all of the budget that decodes leave, nobody enters.
        """
        limits = self._limits
        if len(self.chunks) != 1 or limits.long_prefill_token_threshold or limits.drafting:
            return 0
        ((seq, chunk),) = self.chunks
        decoding = self.decoding
        if chunk + decoding.size < limits.max_num_batched_tokens:
            return 0
        # The step that completes the prompt is another one.
        repeats = (seq.target - 1 - seq.computed) // chunk - 1
        repeats = min(repeats, decoding.steps_to_finish() - 1)
        while repeats > 0 and self._blocks_to_repeat(repeats) > self.kv.free_blocks:
            repeats //= 2
        return max(repeats, 0)

    def _blocks_to_repeat(self, repeats: int) -> int:
        ((seq, chunk),) = self.chunks
        decoding = self.decoding
        decode_blocks = decoding.blocks_behind_first(repeats + 1)
        computed = seq.computed + (repeats + 1) * chunk
        return decode_blocks - (-computed // self._block_size) - seq.blocks

    def repeat_chunk(self, repeats: int) -> None:
        """Gives the prompt as much in each of ``repeats`` further steps."""
        self.kv.take(self._blocks_to_repeat(repeats))
        ((seq, chunk),) = self.chunks
        chunk *= repeats + 1
        seq.blocks = -(-(seq.computed + chunk) // self._block_size)
        self._name_units(seq, chunk)
        self.chunks = [(seq, chunk)]

    # --- waiting requests ---------------------------------------------------------------------

    def _admit(self, budget: int, now_s: float) -> None:
        """Lets waiting requests in, in order, while slots, budget and blocks last."""
        limits = self._limits
        kv = self.kv
        waiting = self.waiting
        while waiting and budget > 0 and len(self.running) < limits.max_num_seqs:
            seq = waiting[0]
            num_hits = taken_back = 0
            found: Chain = []
            if seq.units and limits.enable_prefix_caching:
                # The last token is always computed: its logits are needed.
                found = kv.find(seq.units, (seq.target - 1) // self._unit_tokens)
                if found:
                    num_hits = num_units(found)
                    taken_back = kv.evictable(found)
            cached = num_hits * self._unit_tokens
            chunk = seq.target - cached
            if chunk > self._longest_chunk:
                chunk = self._longest_chunk
            if chunk > budget:
                if not limits.enable_chunked_prefill:
                    self.held_by = TOKENS
                    return
                chunk = budget
            blocks = -(-(cached + chunk) // self._block_size)
            new_blocks = blocks - num_hits * kv.blocks_per_unit
            if self._lacking(seq, blocks) + new_blocks + taken_back > kv.free_blocks:
                return
            waiting.popleft()
            kv.hold(found)
            kv.take(new_blocks)
            seq.held = found
            seq.named = num_hits
            seq.computed = cached
            seq.blocks = blocks
            self._enter(seq, now_s)
            self._name_units(seq, chunk)
            self.chunks.append((seq, chunk))
            budget -= chunk
        self.held_by = TOKENS if budget <= 0 else SLOTS

    def _lacking(self, seq: Sequence, blocks: int) -> int:
        """Returns the blocks that must be free beyond the ``blocks`` of a first chunk."""
        lacking = self._watermark if self.running else 0
        if self._limits.scheduler_reserve_full_isl:
            lacking += -(-seq.target // self._block_size) - blocks
        return lacking

    def _enter(self, seq: Sequence, now_s: float) -> None:
        if seq.scheduled_s < 0.0:
            seq.scheduled_s = now_s
            seq.cached_tokens = seq.computed
        seq.order = self._order
        self._order += 1
        self.running[seq.order] = seq
        self.prefilling.append(seq)

    def _name_units(self, seq: Sequence, chunk: int) -> None:
        """Lets others find the prefix units that the coming step completes, from now on."""
        units, named = seq.units, seq.named
        if named == len(units) or not self._limits.enable_prefix_caching:
            return
        complete = min((seq.computed + chunk) // self._unit_tokens, len(units))
        if complete > named:
            seq.held = self.kv.register(units, seq.held, named, complete)
            seq.named = complete

    # --- prompts that another engine computes -------------------------------------------------

    def reserve(self, seq: Sequence, num_staged: int) -> bool:
        """Takes the blocks of a prompt, less what is cached; returns whether there was room."""
        if self.waiting or len(self.running) >= self._limits.max_num_seqs:
            return False
        kv = self.kv
        found: Chain = []
        if seq.units and self._limits.enable_prefix_caching:
            found = kv.find(seq.units, (seq.target - 1) // self._unit_tokens)
        num_hits = num_units(found)
        blocks = -(-seq.target // self._block_size)
        new_blocks = blocks - num_hits * kv.blocks_per_unit
        watermark = self._watermark if self.running else 0
        if new_blocks + kv.evictable(found) + watermark > kv.free_blocks:
            return False
        kv.hold(found)
        kv.take(new_blocks)
        seq.held = found
        seq.named = num_hits
        seq.computed = num_hits * self._unit_tokens
        seq.blocks = blocks
        return True

    def _enter_loaded(self, budget: int, now_s: float) -> int:
        """Lets those in whose KV has come; returns the budget left.

        Their last token is computed again: its logits are needed.
        """
        loaded = self.loaded
        while loaded and budget > 0 and len(self.running) < self._limits.max_num_seqs:
            seq = loaded.popleft()
            seq.computed = seq.target - 1
            self._enter(seq, now_s)
            self._name_units(seq, 1)
            self.chunks.append((seq, 1))
            budget -= 1
        return budget

    # --- leaving ------------------------------------------------------------------------------

    def settle(self, ended: list[Sequence]) -> None:
        """Lets go of sequences that have all their tokens; one may have been preempted since."""
        for seq in ended:
            if seq.order in self.running:
                del self.running[seq.order]
                self._let_go(seq, seq.computed)
            self._log.stint(seq.index, seq.first_step, self._log.num_steps)

    def abort(self, seq: Sequence) -> bool:
        """Lets go of a sequence that nobody wants any more; returns whether it was here."""
        if self.running.get(seq.order) is not seq:
            return drop(self.waiting, seq)
        del self.running[seq.order]
        if seq.is_decoding:
            self.decoding.leave(seq)
        else:
            self.prefilling.remove(seq)
        self._free(seq, seq.computed)
        return True

    def _let_go(self, seq: Sequence, computed: int) -> None:
        """Frees the blocks of an ended sequence, unless it keeps them."""
        if not seq.keeps_blocks:
            self._free(seq, computed)

    def free(self, seq: Sequence) -> None:
        """Frees the blocks of a sequence that kept them."""
        self._free(seq, seq.computed)

    def _victim(self) -> Sequence:
        """Returns the running sequence to preempt next."""
        if self._is_priority:
            return max(self.running.values(), key=lambda seq: (seq.priority, seq.index))
        return next(reversed(self.running.values()))

    def _preempt(self, seq: Sequence, given: int) -> None:
        """Sends a running sequence back to the waiting queue.

        Tokens ``given`` in the step that is being formed are not computed, but their blocks are
        already cached.
        """
        del self.running[seq.order]
        seq.preemptions += 1
        self.num_preemptions += 1
        if seq.has_ended:
            # With its last token on the way. It is not seen again.
            self._let_go(seq, self._found_again(seq, given))
            return
        known = seq.computed + given
        if seq.is_decoding:
            held = self.decoding.held_blocks(seq, given > 0)
            self.decoding.leave(seq)
            self._log.stint(seq.index, seq.first_step, self._log.num_steps)
            seq.blocks = held
            # Drafts are not cached.
            given = min(given, 1)
            known = self._found_again(seq, given)
        else:
            self.prefilling.remove(seq)
        self._name_private_units(seq, known)
        self._free(seq, known)
        seq.target = seq.prompt_tokens + seq.emitted
        seq.computed = seq.blocks = seq.named = 0
        self.waiting.appendleft(seq)

    def _found_again(self, seq: Sequence, given: int) -> int:
        """Returns how many tokens of a sequence that decoded until now can be found again.

        A block can be found once all of its tokens are known. Asynchronously, that of the last
        step is not known yet, unless a chunk of the prompt was computed in it.
        """
        tokens = seq.computed + given
        is_known = given == 0 and seq.first_step == self._log.num_steps - 1
        return tokens - (self._is_async and not is_known)

    def _name_private_units(self, seq: Sequence, computed: int) -> None:
        """Lets a preempted sequence find again what it computed beyond its prompt's units."""
        if not self._limits.enable_prefix_caching or seq.named < len(seq.units):
            return
        extra = computed // self._unit_tokens - len(seq.units)
        if extra > 0:
            units = seq.units = seq.units + self.kv.private_units(extra)
            seq.held = self.kv.register(units, seq.held, seq.named, len(units))
            seq.named = len(units)

    def _free(self, seq: Sequence, computed: int) -> None:
        num_full = computed // self._block_size if self._limits.enable_prefix_caching else 0
        self.kv.release(seq.held, num_full, seq.blocks - num_full)


def make(limits: EngineLimits, num_blocks: int, blocks_per_unit: int, log: StepLog) -> Scheduler:
    """Returns vLLM's scheduler over a pool of ``num_blocks``."""
    return VllmScheduler(limits, KvCache(num_blocks, blocks_per_unit), log)
