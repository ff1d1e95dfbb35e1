"""A data-parallel rank that steps with others: its engine, and what it tells the group."""

from __future__ import annotations

from dynosim.hardware_models.timing.data_parallel import RankRun
from dynosim.sim.cluster.prompt_balance import RankState
from dynosim.sim.engine.engine import Engine
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.timing import Timer


class RankTimer:
    """Times what a rank does by itself, and notes the batch that it is asked about."""

    __slots__ = ("_own", "decodes_only", "new_tokens", "num_logits")

    def __init__(self, own: Timer) -> None:
        self._own = own
        self.new_tokens = 0
        self.num_logits = 0
        self.decodes_only = False

    def prefill_attention_s(self, chunk_tokens: int, prefix_tokens: int, /) -> float:
        return self._own.prefill_attention_s(chunk_tokens, prefix_tokens)

    def step_s(
        self,
        new_tokens: int,
        num_logits: int,
        prefill_attention_s: float,
        num_decode: int,
        context_tokens: int,
        /,
    ) -> float:
        self.new_tokens, self.num_logits, self.decodes_only = new_tokens, num_logits, False
        return self._own.step_s(
            new_tokens, num_logits, prefill_attention_s, num_decode, context_tokens
        )

    def decode_line(self, num_decode: int, context_tokens: int, /) -> tuple[float, float, float]:
        self.new_tokens, self.num_logits, self.decodes_only = num_decode, num_decode, True
        return self._own.decode_line(num_decode, context_tokens)


class Rank:
    """One rank: scheduler, KV cache and queue of its own, and its load as balancers see it."""

    __slots__ = ("_timer", "engine", "outstanding", "prompt_tokens")

    def __init__(
        self, own: Timer, limits: EngineLimits, num_blocks: int, blocks_per_unit: int
    ) -> None:
        self._timer = RankTimer(own)
        self.engine = Engine(self._timer, limits, num_blocks, blocks_per_unit)
        self.outstanding = 0
        self.prompt_tokens = 0

    @property
    def waiting(self) -> int:
        """Requests that have not entered."""
        return len(self.engine.waiting)

    def accept(self, seq: Sequence) -> None:
        """Queues a request."""
        self._count(seq)
        self.engine.waiting.append(seq)

    def expect(self, seq: Sequence, time_s: float) -> None:
        """Queues a request whose prompt another engine computes."""
        self._count(seq)
        self.engine.expect(seq, time_s)

    def load(self, seq: Sequence, time_s: float, *, with_token: bool) -> None:
        """Takes note that the KV of a request has come; with its only token, that was all."""
        self.engine.load(seq, time_s, with_token=with_token)
        if with_token and seq.output_tokens == 1:
            self._discount(seq)

    def _count(self, seq: Sequence) -> None:
        self.outstanding += 1
        self.prompt_tokens += seq.prompt_tokens

    def _discount(self, seq: Sequence) -> None:
        self.outstanding -= 1
        self.prompt_tokens -= seq.prompt_tokens

    def state(self, max_num_seqs: int) -> RankState:
        """Returns what the ranks tell each other before prompts run."""
        num_running = len(self.engine.running)
        has_work = num_running > 0 or self.waiting > 0
        num_decode = self.engine.num_decode
        return RankState(
            has_prompt=self.engine.has_prompt(),
            generates=num_decode > 0 or not has_work,
            has_slot=num_decode < max_num_seqs,
        )

    def plan(self, now_s: float) -> RankRun | None:
        """Returns what the rank would do next; None where it has no work."""
        if self.engine.begin(now_s) is None:
            return None
        own_s, growth_s, steps = self.engine.run
        timer = self._timer
        return RankRun(
            timer.new_tokens, timer.num_logits, own_s, growth_s, steps, timer.decodes_only
        )

    def abort(self, seq: Sequence) -> bool:
        """Lets go of a request that nobody wants any more; returns whether it was here."""
        is_here = self.engine.abort(seq)
        if is_here:
            self.outstanding -= 1
            self.prompt_tokens -= seq.prompt_tokens
        return is_here

    def end(self) -> list[Sequence]:
        """Completes the rank's part of the run; returns the requests that it finished."""
        finished = self.engine.end()
        for seq in finished:
            self._discount(seq)
        return finished
