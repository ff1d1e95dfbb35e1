"""Continuous batching of one replica: forms batches, leaps over decode steps, keeps a step log.

Scheduling rules are those of vLLM V1 (docs.vllm.ai, "Optimization and Tuning: chunked prefill" and
"V1 scheduler"), as observed on its own scheduler: every step spends a budget of
``max_num_batched_tokens``; running sequences come before waiting ones, decodes take one token each,
prompts are cut into chunks that fit; a waiting request enters in arrival order when a slot of
``max_num_seqs`` and KV blocks for its whole prompt are free; when blocks run out, the sequence that
entered last is preempted, recomputed later, and nobody enters in that step.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from dynosim.sim.engine.decode_set import DecodeSet
from dynosim.sim.engine.kv_cache import KvCache
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.timing import Timer


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """Scheduling limits of one replica; ``max_run`` = 1 steps instead of leaping."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int = 16
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    max_run: int = 1 << 40


class Engine:
    """One replica. ``begin`` starts the next run of steps, ``end`` completes it.

    A *run* is one step with prefill, or a number of decode-only steps whose durations form an
    arithmetic sequence. Between ``begin`` and ``end`` a run may be cut short at a step boundary
    (``boundary_after``) when ``is_interruptible``: an arrival could enter then.
    """

    __slots__ = (
        "_chunks",
        "_limits",
        "_order",
        "_run_dt_s",
        "_run_growth_s",
        "_run_start_s",
        "_run_steps",
        "_timer",
        "_unit_tokens",
        "decoding",
        "is_interruptible",
        "kv",
        "log",
        "num_preemptions",
        "prefilling",
        "running",
        "waiting",
    )

    def __init__(self, timer: Timer, limits: EngineLimits, kv: KvCache) -> None:
        self.kv = kv
        self.log = StepLog()
        self.waiting: deque[Sequence] = deque()
        self.running: dict[int, Sequence] = {}
        self.prefilling: list[Sequence] = []
        self.decoding = DecodeSet(limits.block_size)
        self.is_interruptible = False
        self.num_preemptions = 0
        self._timer = timer
        self._limits = limits
        self._unit_tokens = limits.block_size * kv.blocks_per_unit
        self._order = 0
        self._chunks: list[tuple[Sequence, int]] = []
        self._run_start_s = 0.0
        self._run_dt_s = 0.0
        self._run_growth_s = 0.0
        self._run_steps = 0

    # --- a run begins -------------------------------------------------------------------------

    def begin(self, now_s: float) -> float | None:
        """Schedules the next run at ``now_s``; returns when it ends, None when there is no work."""
        decoding = self.decoding
        preempted = False
        crossing = decoding.blocks_for_step()
        if crossing > self.kv.free_blocks:
            preempted = self._allocate_one_by_one()
        elif crossing:
            self.kv.take(crossing)
        self._chunks.clear()
        budget = self._limits.max_num_batched_tokens - decoding.size
        if self.prefilling:
            budget, preempted = self._continue_prefills(budget, preempted)
        if self.waiting and not preempted:
            self._admit(budget, now_s)
        self._run_start_s = now_s
        if self._chunks:
            return self._begin_step(now_s)
        if decoding.size:
            return self._begin_decode_run(now_s, 1 if preempted else self._limits.max_run)
        return None

    def _begin_step(self, now_s: float) -> float:
        """Starts one step with prefill chunks in it."""
        timer = self._timer
        num_decode = self.decoding.size
        new_tokens = num_logits = num_decode
        attention_s = 0.0
        for seq, chunk in self._chunks:
            attention_s += timer.prefill_attention_s(chunk, seq.computed)
            new_tokens += chunk
            num_logits += seq.computed + chunk == seq.target
        context = self.decoding.context_tokens + num_decode
        self._run_dt_s = timer.step_s(new_tokens, num_logits, attention_s, num_decode, context)
        self._run_growth_s = 0.0
        self._run_steps = 1
        self.is_interruptible = False
        return now_s + self._run_dt_s

    def _begin_decode_run(self, now_s: float, max_run: int) -> float:
        """Starts as many decode-only steps as are certain to be alike."""
        decoding = self.decoding
        size = decoding.size
        context = decoding.context_tokens + size
        dt_s, slope_s, context_limit = self._timer.decode_line(size, context)
        steps = min(decoding.steps_to_finish(), max_run)
        if steps > 1 and context + size * (steps - 1) > context_limit:
            steps = int((context_limit - context) // size) + 1
        if steps > 1:
            # The coming step's blocks are already taken.
            free = self.kv.free_blocks + decoding.blocks_for_step()
            steps = decoding.steps_within(free, steps)
        self._run_dt_s = dt_s
        self._run_growth_s = slope_s * size
        self._run_steps = steps
        # A request that arrives behind a blocked queue, or with no slot free, changes nothing.
        self.is_interruptible = (
            steps > 1 and not self.waiting and len(self.running) < self._limits.max_num_seqs
        )
        return self._time_after(steps)

    def _time_after(self, steps: int) -> float:
        """Returns the time at the end of the run's first ``steps`` steps."""
        growth_s = 0.5 * steps * (steps - 1) * self._run_growth_s
        return self._run_start_s + steps * self._run_dt_s + growth_s

    def boundary_after(self, time_s: float) -> float:
        """Cuts the run at the first step boundary at or after ``time_s``; returns that boundary."""
        elapsed = time_s - self._run_start_s
        growth = self._run_growth_s
        linear = self._run_dt_s - 0.5 * growth
        if growth > 0.0:
            # 0.5 growth j^2 + linear j = elapsed
            guess = (math.sqrt(linear * linear + 2.0 * growth * elapsed) - linear) / growth
        else:
            guess = elapsed / self._run_dt_s
        steps = max(1, math.ceil(guess))
        while steps > 1 and self._time_after(steps - 1) >= time_s:
            steps -= 1
        while self._time_after(steps) < time_s:
            steps += 1
        self._run_steps = min(steps, self._run_steps)
        self.is_interruptible = False
        return self._time_after(self._run_steps)

    # --- who gets tokens ----------------------------------------------------------------------

    def _continue_prefills(self, budget: int, preempted: bool) -> tuple[int, bool]:
        """Gives running prompts their next chunk, preempting from the back when blocks run out."""
        block_size = self._limits.block_size
        for seq in tuple(self.prefilling):
            if seq.order not in self.running or budget <= 0:
                break
            chunk = min(seq.target - seq.computed, budget)
            missing = -(-(seq.computed + chunk) // block_size) - seq.blocks
            while missing > self.kv.free_blocks:
                preempted = True
                if self._preempt_last() is seq:
                    return budget, True
            self.kv.take(missing)
            seq.blocks += missing
            self._give(seq, chunk)
            budget -= chunk
        return budget, preempted

    def _admit(self, budget: int, now_s: float) -> None:
        """Lets waiting requests in, in order, while slots, budget and blocks last."""
        limits = self._limits
        kv = self.kv
        unit_tokens = self._unit_tokens
        waiting = self.waiting
        while waiting and budget > 0 and len(self.running) < limits.max_num_seqs:
            seq = waiting[0]
            # The last token is always computed: its logits are needed.
            num_hits = 0
            if limits.enable_prefix_caching:
                num_hits = kv.hits(seq.units, (seq.target - 1) // unit_tokens)
            cached = num_hits * unit_tokens
            chunk = seq.target - cached
            if chunk > budget:
                if not limits.enable_chunked_prefill:
                    return
                chunk = budget
            held = num_hits * kv.blocks_per_unit
            whole = -(-seq.target // limits.block_size) - held
            taken_back = kv.evictable_hits(seq.units, num_hits) if num_hits else 0
            if whole + taken_back > kv.free_blocks:
                return
            waiting.popleft()
            self._enter(seq, num_hits, now_s)
            seq.computed = cached
            seq.blocks = -(-(cached + chunk) // limits.block_size)
            kv.take(seq.blocks - held)
            self.prefilling.append(seq)
            self._give(seq, chunk)
            budget -= chunk

    def _enter(self, seq: Sequence, num_hits: int, now_s: float) -> None:
        if num_hits:
            self.kv.hold(seq.units, num_hits)
        seq.named = num_hits
        if seq.scheduled_s < 0.0:
            seq.scheduled_s = now_s
            seq.cached_tokens = num_hits * self._unit_tokens
        seq.order = self._order
        self._order += 1
        self.running[seq.order] = seq

    def _give(self, seq: Sequence, chunk: int) -> None:
        """Puts a chunk into the step and names the prefix units that it completes."""
        self._chunks.append((seq, chunk))
        if self._limits.enable_prefix_caching:
            complete = min((seq.computed + chunk) // self._unit_tokens, len(seq.units))
            if complete > seq.named:
                seq.named = self.kv.register(seq.units, seq.named, complete)

    # --- preemption ---------------------------------------------------------------------------

    def _allocate_one_by_one(self) -> bool:
        """Takes the decoders' blocks in running order; returns whether anyone was preempted."""
        preempted = False
        for seq in tuple(self.running.values()):
            if seq.order not in self.running:
                break
            if not seq.is_decoding or not self.decoding.crosses(seq):
                continue
            victim = None
            while self.kv.free_blocks < 1 and victim is not seq:
                preempted = True
                victim = self._preempt_last()
            if victim is seq:
                break
            self.kv.take(1)
        return preempted

    def _preempt_last(self) -> Sequence:
        """Sends the sequence that entered last back to the head of the queue, and returns it."""
        _, seq = self.running.popitem()
        if seq.is_decoding:
            self.decoding.leave(seq)
            self.log.stint(seq.index, seq.first_step, self.log.num_steps)
        else:
            self.prefilling.remove(seq)
        self._name_private_units(seq)
        self.kv.release(seq.units, seq.named, seq.blocks)
        seq.target = seq.prompt_tokens + seq.emitted
        seq.computed = seq.blocks = seq.named = 0
        seq.preemptions += 1
        self.num_preemptions += 1
        self.waiting.appendleft(seq)
        return seq

    def _name_private_units(self, seq: Sequence) -> None:
        """Lets a preempted sequence find again what it computed beyond its prompt's units."""
        if not self._limits.enable_prefix_caching or seq.named < len(seq.units):
            return
        extra = seq.computed // self._unit_tokens - len(seq.units)
        if extra > 0:
            seq.units = seq.units + self.kv.private_units(extra)
            seq.named = self.kv.register(seq.units, seq.named, len(seq.units))

    # --- a run ends ---------------------------------------------------------------------------

    def end(self) -> list[Sequence]:
        """Completes the run, if one began; returns the requests that its last step finished."""
        steps = self._run_steps
        if not steps:
            return []
        self._run_steps = 0
        self.is_interruptible = False
        decoding = self.decoding
        kv = self.kv
        if steps > 1:
            kv.take(decoding.blocks_needed(steps) - decoding.blocks_for_step())
        self.log.run(
            self._run_start_s,
            self._run_dt_s,
            self._run_growth_s,
            steps,
            decoding.size,
            kv.num_blocks - kv.free_blocks,
            len(self.running),
            len(self.waiting),
        )
        finished = decoding.advance(steps)
        for seq in finished:
            self._finish(seq)
        if self._chunks:
            finished = self._end_chunks(finished)
        return finished

    def _end_chunks(self, finished: list[Sequence]) -> list[Sequence]:
        """Moves prompts on; those complete sample a token and join the decoders."""
        step = self.log.num_steps - 1
        for seq, chunk in self._chunks:
            seq.computed += chunk
            if seq.computed < seq.target:
                continue
            self.prefilling.remove(seq)
            seq.emitted += 1
            seq.first_step = step
            if seq.emitted == seq.output_tokens:
                self._finish(seq)
                finished = [*finished, seq]
            else:
                self.decoding.join(seq)
        return finished

    def _finish(self, seq: Sequence) -> None:
        del self.running[seq.order]
        self.kv.release(seq.units, seq.named, seq.blocks)
        self.log.stint(seq.index, seq.first_step, self.log.num_steps)
