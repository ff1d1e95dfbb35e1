"""An engine that loads KV from lower tiers instead of computing it, while it computes for others.

A waiting request is looked at once, when there is a slot and there are blocks for it. Where a tier
holds more of its prompt than the GPU does, and loading that is faster than computing it, blocks are
taken, the load is queued and the request steps aside; what it waits behind may go on. When all has
come, it is first in the queue again, and the scheduler finds what was loaded as it finds any
prefix (vLLM's KV connectors and SGLang's HiCache do the same; docs/kv-tiers.md says where they
differ). Requests that run come first: if they lack blocks, loads are given up for them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice

from dynosim.sim.engine.engine import Engine
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.schedulers.base import WaitingQueue
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.timing import Timer
from dynosim.sim.tiers.reservation import Reservation, cached_units, reserve
from dynosim.sim.tiers.stack import Plan, TierStack


@dataclass(frozen=True)
class Load:
    """A request's KV on its way, or come and not yet taken over by the request."""

    seq: Sequence
    start_s: float
    end_s: float
    tokens: int
    reservation: Reservation


class TieredEngine(Engine):
    """One replica, whose scheduler takes requests in order, over the tiers of ``stack``.

    ``loads`` has (request, start_s, end_s, tokens) of every load.
    """

    __slots__ = (
        "_blocks_per_unit",
        "_coming",
        "_landed",
        "_loads_always",
        "_most_loads",
        "_queue",
        "_seen",
        "_unit_tokens",
        "_wakes_s",
        "loads",
        "stack",
    )

    def __init__(
        self,
        timer: Timer,
        limits: EngineLimits,
        num_blocks: int,
        blocks_per_unit: int,
        stack: TierStack,
        most_loads: int,
        *,
        loads_always: bool,
    ) -> None:
        super().__init__(timer, limits, num_blocks, blocks_per_unit)
        self.loads: list[tuple[int, float, float, int]] = []
        assert isinstance(self.waiting, deque), "loads need a queue in order of arrival"
        self._queue: deque[Sequence] = self.waiting
        self.stack = stack
        self._most_loads = most_loads
        self._loads_always = loads_always
        self._blocks_per_unit = blocks_per_unit
        self._unit_tokens = limits.block_size * blocks_per_unit
        self._coming: list[Load] = []
        self._landed: list[Load] = []
        self._seen: set[int] = set()
        # When an engine that only waits for loads is to look again.
        self._wakes_s: float | None = None

    @property
    def num_waiting(self) -> int:
        return super().num_waiting + len(self._coming)

    # --- arrivals -----------------------------------------------------------------------------

    def _hand_in(self, queue: WaitingQueue, seq: Sequence, time_s: float) -> float | None:
        end_s = super()._hand_in(queue, seq, time_s)
        if self._wakes_s is not None:
            self._wakes_s = None
            return time_s
        return end_s

    def abort(self, seq: Sequence) -> bool:
        self._seen.discard(seq.index)
        for load in self._coming:
            if load.seq is seq:
                self._coming.remove(load)
                load.reservation.drop()
                return True
        for load in self._landed:
            if load.seq is seq:
                self._landed.remove(load)
                load.reservation.drop()
                break
        return super().abort(seq)

    def flush(self) -> None:
        with self.stack.forgetting():
            super().flush()

    # --- runs ---------------------------------------------------------------------------------

    def begin(self, now_s: float) -> float | None:
        self.stack.now_s = now_s
        self._wakes_s = None
        self._land(now_s)
        self._look_for_loads(now_s)
        self._make_way()
        end_s = super().begin(now_s)
        self._take_over()
        if end_s is None:
            if self._coming:
                end_s = self._wakes_s = min(load.end_s for load in self._coming)
            return end_s
        return self._until_next_load(end_s)

    def _until_next_load(self, end_s: float) -> float:
        """Cuts the run at the first boundary at or after the next load's end; returns its end.

        It may still be cut earlier.
        """
        steps = self._run_steps
        if steps == 1 or self._scheduler.chunks:
            return end_s
        # Whoever arrives may have something to load, also behind others.
        self.is_interruptible = True
        next_s = min((load.end_s for load in self._coming), default=end_s)
        if next_s >= end_s:
            return end_s
        self._run_steps = self._steps_until(next_s)
        self.is_interruptible = self._run_steps > 1
        return self._time_after(self._run_steps)

    def _land(self, now_s: float) -> None:
        """Puts those whose KV has come first in the queue, in order of arrival."""
        come = [load for load in self._coming if load.end_s <= now_s]
        if not come:
            return
        self._coming = [load for load in self._coming if load.end_s > now_s]
        for load in sorted(come, key=lambda load: load.seq.index, reverse=True):
            load.reservation.land()
            self._landed.append(load)
            self._queue.appendleft(load.seq)

    def _take_over(self) -> None:
        """Lets go of what requests that have entered now hold themselves."""
        kept = []
        for load in self._landed:
            if self._scheduler.running.get(load.seq.order) is load.seq:
                load.reservation.drop()
            else:
                kept.append(load)
        self._landed = kept

    # --- loads --------------------------------------------------------------------------------

    def _look_for_loads(self, now_s: float) -> None:
        """Queues the loads of waiting requests that there are slots and blocks for."""
        slots = self._limits.max_num_seqs - len(self._scheduler.running) - len(self._coming)
        wanted = 0
        for seq in list(islice(self._queue, max(slots, 0))):
            blocks = -(-seq.target // self._limits.block_size)
            if seq.index in self._seen or not seq.units:
                wanted += blocks
                continue
            if len(self._coming) >= self._most_loads:
                return
            limit = min((seq.target - 1) // self._unit_tokens, len(seq.units))
            cached, idle = cached_units(self.kv, seq.units, limit)
            missing = blocks - cached * self._blocks_per_unit
            if wanted + missing + idle > self.kv.free_blocks:
                return
            self._seen.add(seq.index)
            plan = self.stack.find(seq.units, cached, limit)
            if plan.units and self._is_worth_it(plan, cached, now_s):
                self._queue.remove(seq)
                self._load(seq, plan, cached, now_s)
            else:
                wanted += missing

    def _is_worth_it(self, plan: Plan, cached: int, now_s: float) -> bool:
        """Whether the last unit comes sooner than it would be computed, if computed at once."""
        if self._loads_always:
            return True
        return self.stack.until_s(plan) - now_s < self._computing_s(len(plan.units), cached)

    def _computing_s(self, num_units: int, cached: int) -> float:
        """Returns the seconds of computing units behind cached ones, in chunks, by themselves."""
        computed = cached * self._unit_tokens
        left = num_units * self._unit_tokens
        seconds = 0.0
        while left:
            chunk = min(left, self._limits.max_num_batched_tokens)
            attention_s = self._timer.prefill_attention_s(chunk, computed)
            seconds += self._timer.step_s(chunk, 0, attention_s, 0, 0)
            computed += chunk
            left -= chunk
        return seconds

    def _load(self, seq: Sequence, plan: Plan, cached: int, now_s: float) -> None:
        stop = cached + len(plan.units)
        # What is evicted for it may push other units out of the tiers.
        end_s = self.stack.load(plan)
        reservation = reserve(self.kv, seq.units, cached, stop)
        tokens = len(plan.units) * self._unit_tokens
        self._coming.append(Load(seq, now_s, end_s, tokens, reservation))
        self.loads.append((seq.index, now_s, end_s, tokens))

    def _make_way(self) -> None:
        """Gives up loads, the youngest first, where those who run or come first lack blocks."""
        while (self._coming or self._landed) and self._wanted_blocks() > self.kv.free_blocks:
            if self._coming:
                load = self._coming.pop()
                load.reservation.drop()
                self._queue.appendleft(load.seq)
            else:
                self._landed.pop(0).reservation.drop()

    def _wanted_blocks(self) -> int:
        """Returns the blocks that running requests need for sure, or the first one alone."""
        scheduler, size = self._scheduler, self._limits.block_size
        if scheduler.running:
            prompts = sum(-(-seq.target // size) - seq.blocks for seq in scheduler.prefilling)
            return scheduler.decoding.blocks_for_step() + prompts
        if not self._queue:
            return 0
        first = self._queue[0]
        # Alone it may also need what it generates, and a block in which its last token is computed.
        return min(-(-(first.target + first.output_tokens) // size) + 1, self.kv.num_blocks)
