"""The decoding sequences of an engine that speculates: each gets its own number of tokens a step.

What a sequence will get is known when it joins (:meth:`~.drafting.Drafting.tokens`), so that all
sums over coming steps are kept as arrays, and leaps work as without speculation.
"""

from __future__ import annotations

from heapq import heappop
from typing import NamedTuple

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.engine.decode_set import DecodeSet
from dynosim.sim.engine.drafting import Drafting
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.step_sums import StepSums, differences


class Plan(NamedTuple):
    """One sequence's steps from where it joined: tokens up to each, blocks held at each."""

    join_step: int
    out: IntArray
    blocks: IntArray

    def tokens(self, first: int) -> IntArray:
        """Returns the tokens of each step from the ``first`` on."""
        return differences(self.out, 0)[first:]

    def gained(self, ran: int) -> int:
        """Returns the tokens of the first ``ran`` steps."""
        return int(self.out[ran - 1]) if ran else 0


class SpeculativeDecodeSet(DecodeSet):
    """Decoding sequences, each verified over ``query_tokens`` tokens a step.

    A step of a sequence with ``c`` computed tokens needs KV slots for ``c`` and the verification,
    and the lookahead of its next drafts; slots of refused drafts are used again by the next step.
    """

    __slots__ = ("_blocks", "_drafting", "_log", "_most_slots", "_plans", "_tokens")

    def __init__(self, block_size: int, num_blocks: int, drafting: Drafting, log: StepLog) -> None:
        super().__init__(block_size)
        self._drafting = drafting
        self._log = log
        self._most_slots = min(num_blocks * block_size, drafting.max_model_len)
        self._tokens = StepSums()
        self._blocks = StepSums()
        self._plans: dict[int, Plan] = {}

    def join(self, seq: Sequence) -> None:
        steps = self.steps
        plan = self._plan(seq)
        self._plans[seq.index] = plan
        self._tokens.add(steps, plan.tokens(0))
        self._blocks.add(steps, differences(plan.blocks, seq.blocks))
        seq.is_decoding = True
        seq.join_step = steps
        self.size += 1
        self.width += 1
        self.context_tokens += seq.computed
        self._end_at(steps + len(plan.out), seq)

    def _plan(self, seq: Sequence) -> Plan:
        drafting = self._drafting
        out = drafting.out(seq.index, seq.emitted, seq.output_tokens - seq.emitted)
        slots = np.empty_like(out)
        slots[0] = 0
        slots[1:] = out[:-1]
        slots += seq.computed + drafting.query_tokens + drafting.lookahead_tokens
        blocks = -(-np.minimum(slots, self._most_slots) // self.block_size)
        return Plan(self.steps, out, np.maximum(blocks, seq.blocks))

    def leave(self, seq: Sequence) -> None:
        steps = self.steps
        plan = self._plans[seq.index]
        ran = steps - seq.join_step
        held = int(plan.blocks[ran - 1]) if ran else seq.blocks
        self._tokens.add(steps, -plan.tokens(ran))
        self._blocks.add(steps, -differences(plan.blocks[ran:], held))
        self._due[seq.join_step + len(plan.out)].remove(seq)
        self._settle(seq)

    def _settle(self, seq: Sequence) -> None:
        plan = self._plans.pop(seq.index)
        ran = self.steps - seq.join_step
        tokens = plan.gained(ran)
        seq.computed += tokens
        seq.emitted += tokens
        if ran:
            seq.blocks = int(plan.blocks[ran - 1])
            self._log.verified(seq.index, tokens, ran)
        seq.is_decoding = False
        self.size -= 1
        self.width -= 1
        self.context_tokens -= seq.computed

    def held_blocks(self, seq: Sequence, has_next: bool) -> int:
        ran = self.steps - seq.join_step + has_next
        return int(self._plans[seq.index].blocks[ran - 1]) if ran else seq.blocks

    def missing_blocks(self, seq: Sequence) -> int:
        return self.held_blocks(seq, True) - self.held_blocks(seq, False)

    def emitted(self, seq: Sequence) -> int:
        return seq.emitted + self._plans[seq.index].gained(self.steps - seq.join_step)

    def tokens_left(self) -> list[int]:
        """Returns how many tokens each sequence still wants."""
        steps = self.steps
        plans = self._plans.values()
        return [int(plan.out[-1]) - plan.gained(steps - plan.join_step) for plan in plans]

    def blocks_for_step(self) -> int:
        return self.blocks_needed(1)

    def blocks_behind_first(self, num_steps: int) -> int:
        return self.blocks_needed(num_steps) - self.blocks_for_step()

    def blocks_needed(self, num_steps: int) -> int:
        return int(self._blocks.coming(self.steps, num_steps).sum())

    def blocks_by_step(self, num_steps: int) -> IntArray:
        """Returns the KV blocks that the next steps need, one after the other."""
        return self._blocks.coming(self.steps, num_steps)

    def steps_within(self, num_blocks: int, at_most: int) -> int:
        taken = np.cumsum(self._blocks.coming(self.steps, at_most))
        return int(np.searchsorted(taken, num_blocks, side="right"))

    def contexts(self, num_steps: int) -> IntArray:
        """Returns the summed tokens that attention reads in each of the next steps."""
        tokens = self._tokens.coming(self.steps, num_steps)
        now = self.context_tokens + self.size * self._drafting.query_tokens
        return now + np.cumsum(tokens) - tokens

    def advance(self, num_steps: int) -> list[Sequence]:
        self.context_tokens += int(self._tokens.coming(self.steps, num_steps).sum())
        self.steps += num_steps
        if self._finish_steps and self._finish_steps[0] == self.steps:
            heappop(self._finish_steps)
            finished = self._due.pop(self.steps)
            for seq in finished:
                self._settle(seq)
            return finished
        return []


def decode_set(limits: EngineLimits, num_blocks: int, log: StepLog) -> DecodeSet:
    """Returns the set of decoding sequences that an engine of these limits needs."""
    if limits.drafting is None:
        return DecodeSet(limits.block_size)
    return SpeculativeDecodeSet(limits.block_size, num_blocks, limits.drafting, log)
