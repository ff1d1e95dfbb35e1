"""Data-parallel ranks in lock step: they share experts, so nobody steps without the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace
from typing import Protocol

from dynosim.hardware_models.timing.data_parallel import RankRun
from dynosim.sim.cluster.balancers.base import Balancer
from dynosim.sim.cluster.prompt_balance import PromptBalance
from dynosim.sim.cluster.rank import Rank
from dynosim.sim.engine.engine import Engine
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.timing import Timer


class GroupTimer(Protocol):
    """Seconds of steps of several ranks.

    :class:`dynosim.hardware_models.timing.data_parallel.DataParallelTimer` is one. ``own`` times
    what a rank does by itself.
    """

    @property
    def ranks(self) -> int:
        """How many ranks step together."""
        ...

    @property
    def own(self) -> Timer:
        """Times a rank's attention and head."""
        ...

    def run(self, busy: Items[RankRun], /) -> tuple[float, float, int]:
        """Returns seconds of the first step, growth per step, and steps of the next run."""
        ...


class RankQueues:
    """The ranks' waiting queues as one; ``rank_of`` tells which request went where."""

    def __init__(self, ranks: list[Rank], balancer: Balancer) -> None:
        self.rank_of: dict[int, int] = {}
        self._ranks = ranks
        self._balancer = balancer

    def append(self, seq: Sequence) -> None:
        """Adds a request to the queue of the rank that the balancer chooses."""
        self.choose(seq).accept(seq)

    def choose(self, seq: Sequence) -> Rank:
        """Returns the rank that the balancer chooses for a request, and notes it."""
        chosen = self._balancer.choose(self._ranks)
        self.rank_of[seq.index] = chosen
        return self._ranks[chosen]

    def __len__(self) -> int:
        return sum(rank.waiting for rank in self._ranks)


class RankGroup:
    """One replica of data-parallel ranks, each with its scheduler, KV cache and queue.

    A run is the same number of steps for every rank that has requests, and takes each the same
    time: that of the slowest, with the experts' for the tokens of all. Ranks without requests run
    dummy batches, of which their logs say nothing. Steps with a prompt in any rank go one by one;
    while all decode, a run leaps as far as its times follow one line.
    """

    def __init__(
        self,
        timer: GroupTimer,
        limits: EngineLimits,
        num_blocks: int,
        blocks_per_unit: int,
        balancer: Balancer,
    ) -> None:
        limits = replace(limits, leaps_chunks=False, async_scheduling=False)
        self._ranks = [
            Rank(timer.own, limits, num_blocks, blocks_per_unit) for _ in range(timer.ranks)
        ]
        self.waiting = RankQueues(self._ranks, balancer)
        self.is_interruptible = False
        self._timer = timer
        self._busy: list[Engine] = []
        self._max_num_seqs = limits.max_num_seqs
        self._last_steps = 0
        self._balance: PromptBalance | None = None
        if limits.attention_dp_enable_balance:
            self._balance = PromptBalance(
                limits.attention_dp_timeout_iters, limits.attention_dp_batching_wait_iters
            )

    @property
    def engines(self) -> list[Engine]:
        """The engine of every rank."""
        return [rank.engine for rank in self._ranks]

    @property
    def num_waiting(self) -> int:
        """Requests that have arrived at any rank and not entered."""
        return len(self.waiting)

    def engine_of(self, request: int) -> Engine:
        """Returns the engine of the rank that a request went to."""
        return self._ranks[self.waiting.rank_of[request]].engine

    def expect_kv(self, on_reserved: Callable[[Sequence, float], None]) -> None:
        """Makes the ranks take blocks for prompts to come."""
        for engine in self.engines:
            engine.expect_kv(on_reserved)

    def expect(self, seq: Sequence, time_s: float) -> float | None:
        """Takes a request whose prompt another replica computes, to the rank chosen for it."""
        end_s = self.boundary_after(time_s) if self.is_interruptible else None
        self.waiting.choose(seq).expect(seq, time_s)
        return end_s

    def load(self, seq: Sequence, time_s: float, *, with_token: bool) -> float | None:
        """Takes note that the KV of a request has come to its rank."""
        end_s = self.boundary_after(time_s) if self.is_interruptible else None
        self._rank_of(seq).load(seq, time_s, with_token=with_token)
        return end_s

    def free(self, seq: Sequence) -> None:
        """Frees the blocks of a request that keeps them."""
        self._rank_of(seq).engine.free(seq)

    @property
    def chunks(self) -> list[tuple[Sequence, int]]:
        """The prompts of the step in progress, over all ranks."""
        return [chunk for engine in self._busy for chunk in engine.chunks]

    def _rank_of(self, seq: Sequence) -> Rank:
        return self._ranks[self.waiting.rank_of[seq.index]]

    def run_until(
        self, now_s: float, horizon_s: float, on_finish: Callable[[Sequence, float], None]
    ) -> float:
        """Ends the run that ends now, and those after it that end before ``horizon_s``.

        Returns when the run then in progress ends, infinity where there is no more work.
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

    def end(self) -> list[Sequence]:
        """Completes the run, if one began; returns the requests that its last step finished."""
        if self._busy:
            self._last_steps = self._busy[0].run[2]
        return [seq for rank in self._ranks for seq in rank.end()]

    @property
    def run_steps(self) -> int:
        """Steps of the run in progress, 0 without one."""
        return self._busy[0].run_steps if self._busy else 0

    def abort(self, seq: Sequence) -> bool:
        """Lets go, between two runs, of a request that nobody wants any more."""
        return any(rank.abort(seq) for rank in self._ranks)

    def void(self, seq: Sequence) -> None:
        """Makes the tokens of a request that has finished count no longer."""
        self.engine_of(seq.index).void(seq)

    def begin(self, now_s: float) -> float | None:
        """Starts the next run at ``now_s``; returns when it ends, None where no rank has work."""
        self.is_interruptible = False
        if self._balance is not None:
            self._hold_prompts(self._balance)
        busy, plans = [], []
        for rank in self._ranks:
            plan = rank.plan(now_s)
            if plan is not None:
                busy.append(rank.engine)
                plans.append(plan)
        self._busy = busy
        if not plans:
            return None
        first_s, growth_s, steps = self._timer.run(plans)
        end_s = 0.0
        for engine in busy:
            end_s = engine.retime(first_s, growth_s, steps)
        can_enter = len(busy) < len(self._ranks) or any(e.is_interruptible for e in busy)
        self.is_interruptible = steps > 1 and can_enter
        return end_s

    def _hold_prompts(self, balance: PromptBalance) -> None:
        """Lets prompts of all ranks run in the same step, or none; where nobody has one, decodes
        need not stop."""
        states = [rank.state(self._max_num_seqs) for rank in self._ranks]
        steps = balance.steps_to_wait(states, self._last_steps)
        if not any(state.has_prompt for state in states):
            steps = 0
        for rank in self._ranks:
            rank.engine.hold_prompts(steps)

    def enqueue(self, seq: Sequence, time_s: float) -> float | None:
        """Takes a request that arrives; returns the end of the run in progress if that moves."""
        self.waiting.append(seq)
        return self.boundary_after(time_s) if self.is_interruptible else None

    def boundary_after(self, time_s: float) -> float:
        """Cuts the run at the first step boundary at or after ``time_s``; returns that boundary."""
        self.is_interruptible = False
        end_s = time_s
        for engine in self._busy:
            end_s = engine.boundary_after(time_s)
        return end_s

    def cut(self, time_s: float) -> float:
        """Ends the run in progress with the step in progress at a time; returns when that is."""
        return self.boundary_after(time_s)
