"""Continuous batching of one replica: runs batches on a clock, leaps over decodes, keeps a log.

Who is in a batch is the scheduler's business (:mod:`dynosim.sim.engine.schedulers`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import cast

from dynosim.hardware_models.registry import find_module
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.schedulers.base import (
    BlockPool,
    HoldsPrompts,
    Scheduler,
    StagingScheduler,
    WaitingQueue,
)
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.staging import Staging
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.timing import Timer

__all__ = ["Engine", "EngineLimits"]

_ENTRY = attrgetter("order")


class Engine:
    """One replica. ``begin`` starts the next run of steps, ``end`` completes it.

    A *run* is a number of decode-only steps whose durations form an arithmetic sequence, or a
    number of steps with equal chunks of one prompt, or one step with any chunks. Between ``begin``
    and ``end`` a run may be cut short at a step boundary when ``is_interruptible``: an arrival
    could enter then. Requests are handed over to ``enqueue``. ``on_prefilled``, if set, is called
    with every request that gets its first token, at the end of the step that computed it.

    With asynchronous scheduling a batch is formed when the step before it begins. Only arrivals and
    ends could make it another one until that step ends, so here it is formed then, but they are
    hidden from it: who has arrived since is ``_unseen``, who has ended keeps slot and blocks.
    """

    __slots__ = (
        "_arrived",
        "_attention_s",
        "_blocked",
        "_chunk_attention_s",
        "_chunk_dts_s",
        "_ended",
        "_is_ahead",
        "_is_async",
        "_leaps_chunks",
        "_limits",
        "_run_dt_s",
        "_run_first",
        "_run_growth_s",
        "_run_start_s",
        "_run_steps",
        "_scheduler",
        "_timer",
        "_uneven_s",
        "_unseen",
        "is_interruptible",
        "kv",
        "log",
        "on_prefilled",
        "staging",
        "waiting",
    )

    def __init__(
        self, timer: Timer, limits: EngineLimits, num_blocks: int, blocks_per_unit: int = 1
    ) -> None:
        self.log = StepLog()
        module = find_module("dynosim.sim.engine.schedulers", "scheduler", limits.scheduler)
        scheduler: Scheduler = module.make(limits, num_blocks, blocks_per_unit, self.log)
        self._scheduler = scheduler
        self.kv: BlockPool = scheduler.kv
        self.waiting: WaitingQueue = scheduler.waiting
        self.is_interruptible = False
        self.on_prefilled: Callable[[Sequence], object] | None = None
        self.staging: Staging | None = None
        self._timer = timer
        self._limits = limits
        self._leaps_chunks = limits.max_run > 1 and limits.leaps_chunks
        self._run_start_s = 0.0
        self._run_dt_s = 0.0
        self._run_growth_s = 0.0
        self._run_first = 0
        self._run_steps = 0
        self._chunk_dts_s: list[float] = []
        self._chunk_attention_s: list[float] = []
        self._attention_s = 0.0
        self._blocked = 0
        self._is_async = limits.async_scheduling
        # Whether the next batch counts as formed already.
        self._is_ahead = False
        self._unseen: list[tuple[WaitingQueue, Sequence]] = []
        # Who came while the run was in progress, in time to be seen at its end, and when.
        self._arrived: list[tuple[float, WaitingQueue, Sequence]] = []
        self._ended: list[Sequence] = []
        # Only timers that know of unequal contexts have it.
        self._uneven_s: list[float] | None = getattr(timer, "uneven_s", None)

    # --- one of two pools ---------------------------------------------------------------------

    def expect_kv(self, on_reserved: Callable[[Sequence, float], None]) -> None:
        """Makes room for requests whose prompts other engines compute: see :class:`Staging`.

        ``on_reserved`` is called with each that got its blocks, and when.
        """
        self.staging = Staging(self._staging_scheduler, on_reserved)

    def expect(self, seq: Sequence, time_s: float) -> float | None:
        """Takes a request whose prompt another engine computes; returns as ``enqueue`` does."""
        assert self.staging is not None, "this engine expects nothing"
        return self._hand_in(self.staging.expected, seq, time_s)

    def load(self, seq: Sequence, time_s: float, *, with_token: bool) -> float | None:
        """Takes note that the KV of a request has come; returns as ``enqueue`` does.

        Where its only token came along, that was all, and its blocks are free.
        """
        assert self.staging is not None, "this engine expects nothing"
        self.staging.reserved.remove(seq)
        if not with_token or seq.output_tokens > 1:
            return self._hand_in(self._staging_scheduler.loaded, seq, time_s)
        self.log.handed_over(seq.index, time_s)
        self.free(seq)
        return self.boundary_after(time_s) if self.is_interruptible else None

    def free(self, seq: Sequence) -> None:
        """Frees the blocks of a request that keeps them, once they are not needed any more."""
        self._staging_scheduler.free(seq)

    @property
    def _staging_scheduler(self) -> StagingScheduler:
        assert hasattr(self._scheduler, "loaded"), "this scheduler serves no separate pools"
        return cast("StagingScheduler", self._scheduler)

    @property
    def chunks(self) -> list[tuple[Sequence, int]]:
        """The prompts of the step in progress, and how many tokens each gets."""
        return self._scheduler.chunks

    @property
    def running(self) -> list[Sequence]:
        """The sequences that have entered and not left, in the order in which they entered."""
        return list(self._scheduler.running.values())

    @property
    def num_waiting(self) -> int:
        """Requests that have arrived and hold nothing yet, seen by the scheduler or not."""
        queues = [self.waiting] if self.staging is None else [self.waiting, self.staging.expected]
        unseen = [queue for queue, _ in self._unseen if any(queue is other for other in queues)]
        return sum([len(queue) for queue in queues], start=len(unseen))

    @property
    def num_decode(self) -> int:
        """Sequences that decode."""
        return self._scheduler.decoding.size

    def batch(self) -> list[tuple[Sequence, int]]:
        """Returns who gets how many tokens in each step of the run in progress."""
        scheduler = self._scheduler
        if scheduler.decodes_pause:
            return list(scheduler.chunks)
        return [(seq, 1) for seq in self.running if seq.is_decoding] + scheduler.chunks

    def enqueue(self, seq: Sequence, time_s: float) -> float | None:
        """Takes a request that arrives; returns when the run in progress ends now, if that changes.

        Several requests of one instant, and the end of a run at it, come in this order.
        """
        return self._hand_in(self.waiting, seq, time_s)

    def _hand_in(self, queue: WaitingQueue, seq: Sequence, time_s: float) -> float | None:
        end_s = self.boundary_after(time_s) if self.is_interruptible else None
        if self._is_ahead and (not self._run_steps or time_s > self._last_step_start_s()):
            self._unseen.append((queue, seq))
        else:
            queue.append(seq)
            if self._is_ahead:
                self._arrived.append((time_s, queue, seq))
        return end_s

    def run_until(
        self, now_s: float, horizon_s: float, on_finish: Callable[[Sequence, float], None]
    ) -> float:
        """Ends the run that ends now, and those after it that end before ``horizon_s``.

        Returns when the run then in progress ends, infinity where there is no more work.
        ``on_finish`` is called with each finished sequence and its end time.
        """
        while True:
            for seq in self.end():
                on_finish(seq, now_s)
            end_s = self.begin(now_s)
            if end_s is None:
                return math.inf
            if end_s >= horizon_s:
                return end_s
            now_s = end_s

    # --- a run begins -------------------------------------------------------------------------

    def begin(self, now_s: float) -> float | None:
        """Schedules the next run at ``now_s``; returns when it ends, None when there is no work."""
        scheduler = self._scheduler
        is_single = scheduler.schedule(now_s)
        self._blocked = len(scheduler.waiting)
        if self._is_async:
            is_single = self._look_up(now_s, is_single)
        if self.staging is not None:
            self.staging.reserve(now_s)
        self._run_start_s = now_s
        if scheduler.chunks:
            return self._begin_step(now_s)
        if scheduler.decoding.width:
            # For a prompt or a decode that sat out, the next batch is another one, too.
            if is_single or scheduler.prefilling:
                return self._begin_decode_run(1)
            return self._begin_decode_run(min(self._limits.max_run, scheduler.most_steps))
        return None

    def _look_up(self, now_s: float, is_single: bool) -> bool:
        """Lets the scheduler know what it could not know when the batch was formed.

        Where it formed none, it does so now, as often as it has to preempt for it. Returns whether
        the batch after this one may be another one at once.
        """
        scheduler = self._scheduler
        self._arrived.clear()
        while True:
            if self._is_ahead:
                # Also where nobody ended: prompts that are complete may be told to the cache now.
                scheduler.settle(self._ended)
                if self._ended:
                    is_single = is_single or self._anyone_waits()
                    self._ended = []
            if self._unseen:
                is_single = is_single or self._may_pass_queue()
                for queue, seq in self._unseen:
                    queue.append(seq)
                self._unseen.clear()
            if scheduler.chunks or scheduler.decoding.width:
                self._is_ahead = True
                return is_single
            if not self._is_ahead and not is_single:
                return False
            self._is_ahead = False
            is_single = scheduler.schedule(now_s)
            self._blocked = len(scheduler.waiting)

    def _anyone_waits(self) -> bool:
        return bool(self.waiting) or self.staging is not None

    def _begin_step(self, now_s: float) -> float:
        """Starts one step with prefill chunks in it."""
        timer = self._timer
        scheduler = self._scheduler
        num_decode = context = 0
        if not scheduler.decodes_pause:
            num_decode = scheduler.decoding.width
            context = scheduler.decoding.context_tokens + num_decode
        new_tokens = num_logits = num_decode
        attention_s = 0.0
        for seq, chunk in scheduler.chunks:
            attention_s += timer.prefill_attention_s(chunk, seq.computed)
            new_tokens += chunk
            num_logits += seq.computed + chunk == seq.target
        self._run_dt_s = timer.step_s(new_tokens, num_logits, attention_s, num_decode, context)
        self._attention_s = attention_s
        self._run_growth_s = 0.0
        self._run_first = num_logits - num_decode
        self._run_steps = 1
        self.is_interruptible = False
        if self._leaps_chunks and (repeats := scheduler.chunk_repeats()):
            self._run_steps += repeats
            return now_s + self._time_repeats(repeats, new_tokens, num_decode, context)
        return now_s + self._run_dt_s

    def _time_repeats(
        self, repeats: int, new_tokens: int, num_decode: int, context_tokens: int
    ) -> float:
        """Returns the seconds of the step that begins and of ``repeats`` further chunks.

        Each takes longer than the one before it, along no line.
        """
        timer = self._timer
        ((seq, chunk),) = self._scheduler.chunks
        computed = seq.computed
        self._chunk_dts_s = dts_s = [self._run_dt_s]
        self._chunk_attention_s = attention = [self._attention_s]
        for _ in range(repeats):
            computed += chunk
            context_tokens += num_decode
            attention_s = timer.prefill_attention_s(chunk, computed)
            attention.append(attention_s)
            dts_s.append(
                timer.step_s(new_tokens, num_decode, attention_s, num_decode, context_tokens)
            )
        return sum(dts_s)

    def _begin_decode_run(self, max_run: int) -> float:
        """Starts as many decode-only steps as are certain to be alike."""
        scheduler = self._scheduler
        decoding = scheduler.decoding
        size = decoding.width
        context = decoding.context_tokens + size
        dt_s, slope_s, context_limit = self._timer.decode_line(size, context)
        if self._uneven_s is not None and decoding.size:
            # The same in every step of the run: all contexts grow alike.
            dt_s += self._uneven_s[size] * decoding.longest_beyond_mean()
        steps = min(decoding.steps_to_finish(), max_run)
        if steps > 1:
            if context + size * (steps - 1) > context_limit:
                steps = int((context_limit - context) // size) + 1
            kv = self.kv
            free = kv.free_blocks
            if size * (steps // decoding.block_size + 1) > free:
                # It may get tight. The coming step's blocks are already taken.
                steps = decoding.steps_within(free + decoding.blocks_for_step(), steps)
            if kv.watcher is not None:
                # Who watches is to be told of evictions when they happen: as a run begins.
                steps = kv.steps_without_eviction(decoding, steps)
        self._run_dt_s = dt_s
        self._run_growth_s = slope_s * size
        self._run_first = 0
        self._run_steps = steps
        self.is_interruptible = steps > 1 and self._may_let_in()
        return self._time_after(steps)

    def _may_let_in(self) -> bool:
        """Whether a request that comes now might change the next step.

        One that arrives behind a blocked queue, or with no slot free, does not.
        """
        if self.staging is not None:
            return True
        scheduler = self._scheduler
        has_slot = len(scheduler.running) < self._limits.max_num_seqs
        return has_slot and (not self.waiting or scheduler.may_overtake)

    def _may_pass_queue(self) -> bool:
        """Whether those who wait leave a request that comes now any chance."""
        return self.staging is not None or self._scheduler.may_overtake or not self.waiting

    def _time_after(self, steps: int) -> float:
        """Returns the time at the end of the run's first ``steps`` steps."""
        growth_s = 0.5 * steps * (steps - 1) * self._run_growth_s
        return self._run_start_s + steps * self._run_dt_s + growth_s

    def _last_step_start_s(self) -> float:
        """Returns when the last step of the run in progress begins."""
        if self._run_steps > 1 and self._scheduler.chunks:
            return self._run_start_s + sum(self._chunk_dts_s[:-1])
        return self._time_after(self._run_steps - 1)

    @property
    def run(self) -> tuple[float, float, int]:
        """Returns the first step's seconds, growth per step and steps of the run in progress."""
        return self._run_dt_s, self._run_growth_s, self._run_steps

    @property
    def run_steps(self) -> int:
        """Steps of the run in progress, 0 without one."""
        return self._run_steps

    @property
    def step_end_s(self) -> float:
        """When the step ends, or ended, that is the only one of its run."""
        return self._run_start_s + self._run_dt_s

    def has_prompt(self) -> bool:
        """Whether a prompt could run in the next step; for schedulers that hold them back."""
        return cast("HoldsPrompts", self._scheduler).has_prompt()

    def hold_prompts(self, steps: int) -> None:
        """Keeps prompts out of the next run, which has at most ``steps`` steps; 0 lets them go."""
        cast("HoldsPrompts", self._scheduler).held_steps = steps

    def retime(self, first_s: float, growth_s: float, steps: int) -> float:
        """Gives the run in progress the times of a group in lock step; returns when it ends.

        It gets no more steps than it had.
        """
        assert steps <= self._run_steps, "a run got steps that its batch may not have"
        self._run_dt_s, self._run_growth_s, self._run_steps = first_s, growth_s, steps
        self.is_interruptible = self.is_interruptible and steps > 1
        return self._time_after(steps)

    def boundary_after(self, time_s: float) -> float:
        """Cuts the run where a request that arrives at ``time_s`` can enter; returns that time.

        It is the first step boundary at or after ``time_s``, asynchronously the one after that.
        """
        # Whoever expects KV takes blocks at the first boundary even so.
        later = self._is_async and self.staging is None
        self._run_steps = min(self._steps_until(time_s) + later, self._run_steps)
        self.is_interruptible = False
        return self._time_after(self._run_steps)

    def cut(self, time_s: float) -> float:
        """Ends the run in progress with the step in progress at a time; returns when that is."""
        self._run_steps = self._steps_until(time_s)
        self.is_interruptible = False
        self._hide_late()
        return self._time_after(self._run_steps)

    def _hide_late(self) -> None:
        """Hides from the next batch who came after it was formed, as the run now ends earlier."""
        formed_s = self._last_step_start_s() if self._arrived else 0.0
        for time_s, queue, seq in self._arrived:
            if time_s > formed_s:
                queue.remove(seq)
                self._unseen.append((queue, seq))
        self._arrived = [entry for entry in self._arrived if entry[0] <= formed_s]

    def used_blocks_at(self, time_s: float) -> int:
        """Returns the KV blocks held in the step in progress at a time within the run."""
        used = self.kv.used_blocks
        steps = self._run_steps
        if steps > 1 and not self._scheduler.chunks:
            decoding = self._scheduler.decoding
            steps = self._steps_until(time_s)
            used += decoding.blocks_behind_first(steps)
        return used

    def _steps_until(self, time_s: float) -> int:
        """Returns the run's steps up to its first boundary at or after ``time_s``."""
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
        return min(steps, self._run_steps)

    # --- a run ends ---------------------------------------------------------------------------

    def end(self) -> list[Sequence]:
        """Completes the run, if one began; returns the requests that its last step finished."""
        steps = self._run_steps
        if not steps:
            return []
        self._run_steps = 0
        self.is_interruptible = False
        scheduler = self._scheduler
        decoding = scheduler.decoding
        chunks = scheduler.chunks
        kv = self.kv
        start_s, count = self._run_start_s, steps
        context = decoding.context_tokens
        prefill_tokens = 0
        for _, chunk in chunks:
            prefill_tokens += chunk
        if steps > 1:
            if chunks:
                free = kv.free_blocks
                scheduler.repeat_chunk(steps - 1)
                start_s, count = self._log_chunks_before_last(free - kv.free_blocks), 1
                context += (steps - 1) * decoding.width
            else:
                kv.take_steps(decoding, steps)
        self.log.run(
            start_s,
            self._run_dt_s,
            self._run_growth_s,
            count,
            decoding.size,
            self._run_first,
            kv.num_blocks - kv.free_blocks,
            len(scheduler.running),
            len(scheduler.waiting),
            prefill_tokens,
            self._blocked,
            scheduler.held_by,
            context,
            self._attention_s if prefill_tokens else 0.0,
        )
        if scheduler.decodes_pause:
            self.log.pause()
            finished = []
        else:
            finished = decoding.advance(steps)
        if chunks:
            finished = self._end_chunks(finished)
        if len(finished) > 1:
            # Blocks are freed in running order, which decides what is evicted first.
            finished = sorted(finished, key=_ENTRY)
        if self._is_async:
            self._ended = finished
        elif finished:
            scheduler.settle(finished)
        return finished

    def _log_chunks_before_last(self, blocks: int) -> float:
        """Logs the steps of a run of equal chunks but the last one; returns when that began.

        The steps after the first took ``blocks`` together.
        """
        scheduler = self._scheduler
        size = scheduler.decoding.size
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        blocked, held_by = self._blocked, scheduler.held_by
        ((_, chunks),) = scheduler.chunks
        width, context = scheduler.decoding.width, scheduler.decoding.context_tokens
        chunk = chunks // len(self._chunk_dts_s)
        start_s = self._run_start_s
        *before, self._run_dt_s = self._chunk_dts_s
        *attention, self._attention_s = self._chunk_attention_s
        # The blocks held grow evenly, but for where decodes come to the end of one.
        last_used = self.kv.num_blocks - self.kv.free_blocks
        lefts = range(len(before), 0, -1)
        for left, dt_s, attention_s in zip(lefts, before, attention, strict=True):
            used = last_used - blocks * left // len(before)
            state = (used, running, waiting, chunk, blocked, held_by, context, attention_s)
            self.log.run(start_s, dt_s, 0.0, 1, size, 0, *state)
            context += width
            start_s += dt_s
        return start_s

    def _end_chunks(self, finished: list[Sequence]) -> list[Sequence]:
        """Moves prompts on; those complete sample a token, and end or join the decoders."""
        scheduler = self._scheduler
        step = self.log.num_steps - 1
        for seq, chunk in scheduler.chunks:
            seq.computed += chunk
            if seq.computed < seq.target:
                continue
            scheduler.prefilling.remove(seq)
            seq.emitted += 1
            seq.first_step = step
            if self.on_prefilled is not None and seq.emitted == 1:
                self.on_prefilled(seq)
            if seq.emitted == seq.output_tokens:
                finished = [*finished, seq]
            else:
                scheduler.decoding.join(seq)
        return finished

    def flush(self) -> None:
        """Forgets all KV that no request holds."""
        self.kv.flush()

    # --- what comes to nothing ----------------------------------------------------------------

    def abort(self, seq: Sequence) -> bool:
        """Lets go, between two runs, of a request that nobody wants any more.

        Returns whether it was here; the tokens that it has had count no longer.
        """
        for place, (queue, unseen) in enumerate(self._unseen):
            if unseen is seq:
                del self._unseen[place]
                if self.staging is not None and queue is self._staging_scheduler.loaded:
                    self.free(seq)
                return True
        is_here = self._scheduler.abort(seq)
        if is_here:
            self.log.void(seq.index)
        return is_here or (self.staging is not None and self.staging.abort(seq))

    def void(self, seq: Sequence) -> None:
        """Makes the tokens of a request that the last run finished count no longer."""
        if seq in self._ended:
            # Nobody has seen it end so far.
            self._ended.remove(seq)
            self._scheduler.settle([seq])
        self.log.void(seq.index)
