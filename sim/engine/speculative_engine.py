"""An engine that speculates: its decode steps verify drafts, and no two of a run are alike."""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.sim.engine.engine import Engine
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.speculative_decode_set import SpeculativeDecodeSet
from dynosim.sim.engine.timing import Timer


class SpeculativeTimer(Timer, Protocol):
    """Seconds of steps whose decodes take several tokens each, drafting included.

    In ``step_s`` they count in ``new_tokens`` and ``num_logits``.
    """

    def decode_steps_s(self, num_decode: int, context_tokens: IntArray, /) -> FloatArray:
        """Returns seconds of decode-only steps, one for each summed number of tokens read."""
        ...


class SpeculativeEngine(Engine):
    """One replica. A run is any number of decode-only steps, or one step with any chunks."""

    __slots__ = ("_ends_s", "_query_tokens", "_steps_s")

    def __init__(
        self, timer: Timer, limits: EngineLimits, num_blocks: int, blocks_per_unit: int = 1
    ) -> None:
        super().__init__(timer, limits, num_blocks, blocks_per_unit)
        self._query_tokens = limits.query_tokens
        self._steps_s: FloatArray = np.empty(0)
        self._ends_s: FloatArray = np.empty(0)

    @property
    def _decoding(self) -> SpeculativeDecodeSet:
        decoding = self._scheduler.decoding
        assert isinstance(decoding, SpeculativeDecodeSet), "this scheduler cannot speculate"
        return decoding

    def batch(self) -> list[tuple[Sequence, int]]:
        decodes = {seq.index for seq in self.running if seq.is_decoding}
        return [
            (seq, self._query_tokens if seq.index in decodes else tokens)
            for seq, tokens in super().batch()
        ]

    def _begin_step(self, now_s: float) -> float:
        timer = self._timer
        decoding = self._decoding
        num_decode = context = 0
        if not self._scheduler.decodes_pause:
            num_decode = decoding.width
            context = decoding.context_tokens + num_decode * self._query_tokens
        new_tokens = num_logits = num_decode * self._query_tokens
        attention_s = 0.0
        for seq, chunk in self._scheduler.chunks:
            attention_s += timer.prefill_attention_s(chunk, seq.computed)
            new_tokens += chunk
            num_logits += seq.computed + chunk == seq.target
        self._run_dt_s = timer.step_s(new_tokens, num_logits, attention_s, num_decode, context)
        self._attention_s = attention_s
        self._run_growth_s = 0.0
        self._run_first = num_logits - num_decode * self._query_tokens
        self._run_steps = 1
        self.is_interruptible = False
        return now_s + self._run_dt_s

    def _begin_decode_run(self, max_run: int) -> float:
        decoding = self._decoding
        steps = min(decoding.steps_to_finish(), max_run)
        if steps > 1:
            # The coming step's blocks are already taken.
            steps = decoding.steps_within(self.kv.free_blocks + decoding.blocks_for_step(), steps)
            if self.kv.watcher is not None:
                steps = self.kv.steps_without_eviction(decoding, steps)
        timer = cast("SpeculativeTimer", self._timer)
        self._steps_s = timer.decode_steps_s(decoding.width, decoding.contexts(steps))
        self._ends_s = self._run_start_s + np.cumsum(self._steps_s)
        self._run_dt_s = float(self._steps_s[0])
        self._run_growth_s = 0.0
        self._run_first = 0
        self._run_steps = steps
        self.is_interruptible = steps > 1 and self._may_let_in()
        return float(self._ends_s[-1])

    def boundary_after(self, time_s: float) -> float:
        self._run_steps = self._steps_until(time_s)
        self.is_interruptible = False
        return float(self._ends_s[self._run_steps - 1])

    def cut(self, time_s: float) -> float:
        return self.boundary_after(time_s)

    def _steps_until(self, time_s: float) -> int:
        steps = int(np.searchsorted(self._ends_s[: self._run_steps], time_s)) + 1
        return min(steps, self._run_steps)

    def end(self) -> list[Sequence]:
        if self._run_steps > 1:
            self._complete_all_but_last(self._run_steps)
        return super().end()

    def _complete_all_but_last(self, steps: int) -> None:
        """Runs and logs the steps in which nobody ends, and leaves the last one to the caller."""
        decoding, kv = self._decoding, self.kv
        held = kv.num_blocks - kv.free_blocks - decoding.blocks_for_step()
        taken = np.cumsum(decoding.blocks_by_step(steps - 1))
        kv.take_steps(decoding, steps)
        starts_s = np.concatenate(([self._run_start_s], self._ends_s[: steps - 1]))
        self.log.runs(
            starts_s[:-1],
            self._steps_s[: steps - 1],
            held + taken,
            decoding.size,
            len(self._scheduler.running),
            len(self._scheduler.waiting),
            decoding.contexts(steps - 1),
            self._blocked,
            self._scheduler.held_by,
        )
        decoding.advance(steps - 1)
        self._run_start_s = float(starts_s[-1])
        self._run_dt_s = float(self._steps_s[steps - 1])
        self._run_steps = 1
