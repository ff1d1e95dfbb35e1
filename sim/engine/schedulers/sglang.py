"""Who gets how many tokens in a step, by the rules of SGLang's scheduler.

The rules, as read in SGLang 0.5.14 (``docs/sglang-rules.md`` says where, and what is left out):

- Prefill comes first. Whenever a request can enter, or a prompt is unfinished, the next step is a
  prefill batch alone, and those who decode sit it out. With ``enable_mixed_chunk`` they take part.
- A batch takes ``max_num_batched_tokens`` (``chunked_prefill_size``). At most one prompt is cut
  by its end; it goes first in the next.
- A request enters when the pool holds its prompt and its ``max_new_tokens`` beside a share, the
  new-token ratio, of what running requests may still generate. The first that does not fit ends
  admission until a decode batch has lost somebody.
- Who waits is in order of arrival (``fcfs``), or sorted anew before each try (``lpm``,
  ``dfs_weight``, ``lof``).
- With ``scheduler_recv_interval`` above 1, who arrives is seen after a prefill batch, when nothing
  runs, or after so many decode steps.
- When decodes run out of blocks, whoever has generated least is retracted: to the end of the
  queue, its blocks freed but for what the tree holds of its prompt. The ratio rises.
"""

from __future__ import annotations

from dynosim.hardware_models.errors import UserError
from dynosim.sim.engine.holds import BLOCKS, SLOTS, TOKENS
from dynosim.sim.engine.inbox import UNBOUNDED_STEPS, Inbox
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.prefill_budget import PrefillBudget
from dynosim.sim.engine.radix_cache import Lease, RadixCache, RadixNode
from dynosim.sim.engine.schedulers.base import Scheduler, WaitingQueue, hand_over
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.sglang_running import SglangRunning
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.waiting_order import WaitingOrder

POLICIES = ("fcfs", "lpm", "dfs_weight", "lof")


class SglangScheduler(SglangRunning):
    """Forms the batch of each step."""

    def __init__(self, limits: EngineLimits, kv: RadixCache, log: StepLog) -> None:
        super().__init__(limits, kv, log)
        interval = limits.scheduler_recv_interval
        self._inbox = Inbox(self._queue, interval) if interval > 1 else None
        # An inbox is false while it is empty.
        self.waiting: WaitingQueue = self._queue if self._inbox is None else self._inbox
        self.most_steps = UNBOUNDED_STEPS
        self.may_overtake = False
        self.held_by = BLOCKS
        self.decodes_pause = False
        self._limits = limits
        self._waiting_order = WaitingOrder(
            limits.scheduling_policy, kv, self._leases, limits.block_size, self._rules
        )
        # Nobody is tried again until a decode batch has lost somebody.
        self._is_full = False
        # Whether the step's decodes take part in its prefill batch, and the blocks kept for them.
        self._is_mixed = False
        self._kept_back = 0
        self._order = 0

    def schedule(self, now_s: float) -> bool:
        """Forms the batch of the next step; returns whether the next may differ at once.

        The batch is empty only when there is no work.
        """
        return self._form(now_s)

    def _form(self, now_s: float, *, is_second_try: bool = False) -> bool:
        self._drop_trailing()
        if self._inbox is not None:
            self._receive(self._inbox)
        self._end_batch()
        can_try = bool(self._queue) and not self._is_full
        if (can_try or self._chunked is not None) and self._form_prefill(now_s):
            return False
        if self.loaded:
            self._enter_loaded(now_s)
        is_single = self._form_decode()
        is_single = self._trail() or is_single
        if self.decoding.width:
            return is_single or (bool(self._queue) and not self._is_full)
        if self._queue and not is_second_try:
            # All that ran have ended. A step of nobody takes no time.
            return self._form(now_s, is_second_try=True)
        self._estimate.restart(None, self.decoding.steps)
        return False

    def abort(self, seq: Sequence) -> bool:
        """Lets go of a sequence that nobody wants any more; returns whether it was here."""
        self._drop_trailing()
        self._end_batch()
        if self.running.get(seq.order) is not seq:
            return self._forget_waiting(self._queue if self._inbox is None else self._inbox, seq)
        self._give_up(seq)
        self._is_full = False
        return True

    def _receive(self, inbox: Inbox) -> None:
        """Looks at who has arrived: after prefill, when nothing runs, else now and then."""
        step = self._log.num_steps
        inbox.receive(step, at_once=bool(self.chunks) or not self.running)
        is_full = len(self.running) >= self._limits.max_num_seqs
        self.most_steps = inbox.most_steps(step, is_hidden=is_full)

    def _end_batch(self) -> None:
        """Caches what the last step's chunks computed; those whose prompts are done decode now."""
        if not self.chunks:
            return
        if self._is_async:
            self._unsettled = [seq for seq, _ in self.chunks if seq is not self._chunked]
            if self._chunked is not None and len(self._unsettled) < len(self.chunks):
                self._cache(self._chunked)
        else:
            self._cache_chunks(len(self.chunks))
        decoding = self.decoding
        num_joined = num_ended = 0
        for seq, _ in self.chunks:
            if seq.is_decoding:
                self._estimate.add(seq.index, decoding.steps, seq.output_tokens - seq.emitted)
                num_joined += 1
            elif seq.has_ended and self._is_async:
                num_ended += 1
        num_before = decoding.size - num_joined + self._num_gone + self._num_unseen - num_ended
        if num_joined + num_ended < len(self.chunks) or not num_before or self._is_mixed:
            # Some have ended, or the batch becomes the running one.
            self._is_full = False
        self.chunks.clear()
        self.decodes_pause = False

    # --- prefill ------------------------------------------------------------------------------

    def _form_prefill(self, now_s: float) -> bool:
        """Forms a prefill batch; returns whether there is one."""
        chunked = self._chunked
        num_decode = self.decoding.size
        slots = self._limits.max_num_seqs - num_decode - self._num_unseen
        slots -= max(self._num_gone, chunked is not None)
        if slots <= 0 and chunked is None:
            self._is_full = True
            self.held_by = SLOTS
            return False
        self._is_mixed = is_mixed = self._limits.enable_mixed_chunk and num_decode > 0
        self._kept_back = self.decoding.blocks_for_step() if is_mixed else 0
        if self._kept_back > self.kv.free_blocks:
            self.held_by = BLOCKS
            return False
        self._waiting_order.sort(self._queue)
        budget = self._budget()
        if chunked is None or self._continue(chunked, budget):
            self._admit(budget, slots, now_s)
        else:
            self.held_by = BLOCKS
        if not self.chunks:
            return False
        self._take_blocks()
        self._num_cached = 0
        if self._limits.enable_mixed_chunk:
            self._mix()
        self.decodes_pause = num_decode > 0 and not is_mixed
        if is_mixed:
            self._trail()
        if not self.decodes_pause:
            # It counts as a step of the decode set, but the ratio falls in decode batches only.
            self._estimate.skip_step()
        return True

    def _budget(self) -> PrefillBudget:
        limits = self._limits
        tokens = limits.max_num_batched_tokens
        chunk = tokens if limits.enable_chunked_prefill else None
        prefill = tokens if chunk is None else self._rules.max_prefill_tokens
        promised = self._estimate.tokens(self.decoding.steps)
        if limits.enable_mixed_chunk:
            num_decode = self.decoding.size + self._num_gone
            promised += max(num_decode, self._kept_back * self._block_size)
            prefill -= num_decode
            chunk = None if chunk is None else chunk - num_decode
        return PrefillBudget(self._block_size, chunk, prefill, promised)

    def _left(self, budget: PrefillBudget) -> float:
        """Returns the tokens of the pool that are neither held nor promised."""
        return self.kv.free_blocks * self._block_size - budget.promised

    def _continue(self, seq: Sequence, budget: PrefillBudget) -> bool:
        """Gives the cut prompt its next chunk; returns whether there was room for any of it."""
        assert budget.chunk is not None, "a prompt was cut without chunked prefill"
        rest = seq.target - seq.computed
        left = int(self._left(budget))
        chunk = min(rest, budget.chunk if left <= 0 else min(left, budget.chunk))
        # Binds only where decodes of mixed batches have eaten what was promised to the prompt.
        blocks = seq.blocks + self.kv.free_blocks - self._kept_back
        chunk = min(chunk, blocks * self._block_size - seq.computed)
        if chunk <= 0:
            return False
        if chunk == rest:
            self._chunked = None
        budget.spend(chunk, self._clipped(seq.output_tokens) if chunk == rest else 0)
        self.chunks.append((seq, chunk))
        return True

    def _admit(self, budget: PrefillBudget, slots: int, now_s: float) -> None:
        """Lets waiting requests in, in order, until one does not fit."""
        self.held_by = TOKENS
        may_go_on = True
        while may_go_on and self._queue:
            if len(self.chunks) >= slots:
                self._is_full = True
                self.held_by = SLOTS
                return
            may_go_on = self._try(self._queue[0], budget, now_s)

    def _try(self, seq: Sequence, budget: PrefillBudget, now_s: float) -> bool:
        """Lets the first request in if it fits; returns whether the next may be tried."""
        kv = self.kv
        page = self._block_size
        node, num_units, num_blocks = self._find(seq)
        rest = seq.target - num_blocks * page
        wanted = rest + self._clipped(seq.output_tokens - seq.emitted) + page
        chunk = budget.first_chunk(rest, is_first=not self.chunks)
        left = self._left(budget)
        if chunk or budget.chunk is not None:
            # Not looked at where, without chunked prefill, the batch has no room.
            left -= kv.idle_blocks(node) * page
        # Alone, a request enters whatever it may need: the pool is large enough for any.
        if (self.running or kv.used_blocks) and wanted >= left:
            self._is_full = True
            self.held_by = BLOCKS
            return False
        if not chunk:
            return False
        self._queue.popleft()
        self._enter(seq, node, num_units, num_blocks, now_s)
        self.chunks.append((seq, chunk))
        if chunk < rest:
            self._chunked = seq
        budget.spend(chunk, self._clipped(seq.output_tokens) if chunk == rest else 0)
        if self._left(budget) <= 0:
            self._is_full = True
            self.held_by = BLOCKS
            return False
        return not budget.is_spent

    def _find(self, seq: Sequence) -> tuple[RadixNode, int, int]:
        """Returns where a request's cached prefix ends, its units, and the blocks it spares.

        The last token is always computed: its logits are needed.
        """
        kv = self.kv
        lease = self._leases.get(seq.index)
        most = (seq.target - 1) // self._block_size
        limit = -(-most // kv.blocks_per_unit)
        node, num_units, num_blocks = kv.match(seq.units, lease, limit)
        if num_blocks > most:
            if kv.free_blocks == kv.idle_blocks(node):
                # Holding the last unit would leave no block to compute its last token in.
                return kv.match(seq.units, lease, num_units - 1)
            num_blocks = most
        return node, num_units, num_blocks

    def _clipped(self, output_tokens: int) -> int:
        return min(output_tokens, self._rules.clip_max_new_tokens)

    def _enter(
        self, seq: Sequence, node: RadixNode, num_units: int, num_blocks: int, now_s: float
    ) -> None:
        self._lease(seq, node, num_units, num_blocks)
        if seq.scheduled_s < 0.0:
            seq.scheduled_s = now_s
            seq.cached_tokens = seq.computed
        self._run(seq)
        self.prefilling.append(seq)

    def _run(self, seq: Sequence) -> None:
        seq.order = self._order
        self._order += 1
        self.running[seq.order] = seq

    def _lease(self, seq: Sequence, node: RadixNode, num_units: int, num_blocks: int) -> None:
        """Holds what a request finds in the tree."""
        lease = self._leases.get(seq.index)
        if lease is None:
            lease = self._leases[seq.index] = Lease(self.kv.root)
        self.kv.lock(node)
        lease.node = node
        lease.units = num_units
        lease.blocks = seq.blocks = num_blocks
        seq.computed = num_blocks * self._block_size

    def _take_blocks(self) -> None:
        """Takes the blocks of the batch, evicting for all of it at once."""
        page = self._block_size
        wanted = num_blocks = 0
        for seq, chunk in self.chunks:
            total = -(-(seq.computed + chunk) // page)
            num_blocks += total - seq.blocks
            seq.blocks = total
            # A page more each, since the allocator does not look at where a chunk begins.
            wanted += chunk + (page if page > 1 else 0)
        self.kv.make_room(-(-wanted // page))
        self.kv.take(num_blocks)

    def _mix(self) -> None:
        """Lets the decodes, if any, take part in the batch, behind its prompts."""
        self.kv.make_room(self.decoding.size)
        self.kv.take(self._kept_back)
        self._num_gone = 0
        chunks = [seq for seq, _ in self.chunks]
        decodes = [seq for seq in self.running.values() if seq.is_decoding or seq.has_ended]
        self._reorder(chunks + decodes)

    # --- decode -------------------------------------------------------------------------------

    def _form_decode(self) -> bool:
        """Forms a batch of all that decode; returns whether some had to be retracted for it."""
        decoding = self.decoding
        has_shrunk = self._num_gone > 0 or not (decoding.size or self._num_unseen)
        self._num_gone = 0
        must_retract = decoding.blocks_for_step() > self.kv.free_blocks
        if must_retract:
            self._retract()
        if has_shrunk or must_retract:
            self._is_full = False
        self.kv.take_step(decoding.blocks_for_step(), decoding.size)
        return must_retract

    # --- prompts that another engine computes -------------------------------------------------

    def reserve(self, seq: Sequence, num_staged: int) -> bool:
        """Takes the blocks of a prompt, less what is cached; returns whether there was room.

        Every request that was let in keeps room for tokens to come. Few slots
        (:attr:`SglangRules.few_slots`) do not bound those that wait for their KV.
        """
        kv, rules, page = self.kv, self._rules, self._block_size
        slots = self._limits.max_num_seqs
        most = slots * (3 if slots <= rules.few_slots else 1)
        num_in = len(self.running) + num_staged
        if self.waiting or num_in >= most:
            return False
        node, num_units, num_blocks = self._find(seq)
        blocks = -(-seq.target // page) - num_blocks
        room = (kv.free_blocks - kv.idle_blocks(node) - blocks) * page
        if kv.used_blocks and room < rules.reserved_decode_tokens * (num_in + 1):
            return False
        self._lease(seq, node, num_units, num_blocks)
        seq.blocks += blocks
        kv.make_room(blocks)
        kv.take(blocks)
        return True

    def _enter_loaded(self, now_s: float) -> None:
        """Lets those in whose KV and first token have come: they generate from now on."""
        decoding = self.decoding
        most = self._limits.max_num_seqs - self._num_unseen
        while self.loaded and decoding.size < most:
            seq = self.loaded.popleft()
            self._run(seq)
            hand_over(seq, decoding, self._log, now_s)
            self._cache(seq)
            self._estimate.add(seq.index, decoding.steps, seq.output_tokens - seq.emitted)


def make(limits: EngineLimits, num_blocks: int, blocks_per_unit: int, log: StepLog) -> Scheduler:
    """Returns SGLang's scheduler over a pool of ``num_blocks``; UserError where it would not start.

    ``block_size`` is its page size, ``max_num_batched_tokens`` its chunked prefill size (without
    chunked prefill: its ``max_prefill_tokens``), ``max_num_seqs`` its ``max_running_requests``.
    """
    tokens, page = limits.max_num_batched_tokens, limits.block_size
    if limits.enable_chunked_prefill and tokens % page:
        raise UserError(
            f"sglang takes a chunk of whole KV pages: {tokens} is no multiple of {page}",
            where="max_num_batched_tokens",
            hint=f"nearest: {max(page, round(tokens / page) * page)}",
        )
    kv = RadixCache(num_blocks, blocks_per_unit, limits.enable_prefix_caching)
    return SglangScheduler(limits, kv, log)
