"""How long a request would take at a replica, from what a router knows of it."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.sim.cluster.replica_view import ReplicaView
from dynosim.sim.engine.timing import Timer


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a replica's steps.

    A replica is ``ranks`` engines that share its load evenly, each of which computes at most
    ``max_num_batched_tokens`` in a step, for at most ``max_num_seqs`` sequences.
    """

    timer: Timer
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    ranks: int = 1


class TimePrediction:
    """Adds up the steps for all prompt tokens ahead of a request and its own, and then its decodes.

    All that decodes at the replica is taken to go on beside them. Waiting for KV blocks or a batch
    slot is not foreseen.
    """

    def __init__(self, steps: StepTimes) -> None:
        self._steps = steps
        self._answers = 0
        self._answer_tokens = 0

    def answered(self, output_tokens: int) -> None:
        """Takes in the length of a finished answer: the next ones are expected to be like it."""
        self._answers += 1
        self._answer_tokens += output_tokens

    def ttft_s(self, replica: ReplicaView, new_tokens: int, cached_tokens: int) -> float:
        """Returns seconds to the first token of a prompt with so many tokens new and cached."""
        steps = self._steps
        timer = steps.timer
        beside, context = self._decodes(replica)
        room = max(steps.max_num_batched_tokens - beside, 1)
        ahead = replica.prefill_tokens // steps.ranks
        full, rest = divmod(ahead + new_tokens, room)
        seconds = timer.prefill_attention_s(new_tokens, cached_tokens)
        if ahead:
            # Their own lengths are not told apart here: chunks of one step each.
            chunk = min(ahead, room)
            seconds += timer.prefill_attention_s(chunk, 0) * ahead / chunk
        elif beside:
            # A step of decodes is in progress, half done on average.
            seconds += 0.5 * timer.decode_line(beside, context + beside)[0]
        if full:
            seconds += full * timer.step_s(room + beside, beside, 0.0, beside, context)
        if rest:
            seconds += timer.step_s(rest + beside, beside + 1, 0.0, beside, context)
        return seconds

    def e2el_s(self, replica: ReplicaView, new_tokens: int, cached_tokens: int) -> float:
        """Returns seconds to the last token, if the answer is as long as the mean one so far."""
        seconds = self.ttft_s(replica, new_tokens, cached_tokens)
        if not self._answers:
            return seconds
        beside, context = self._decodes(replica)
        context += new_tokens + cached_tokens
        step_s = self._steps.timer.decode_line(beside + 1, context + beside + 1)[0]
        return seconds + (self._answer_tokens / self._answers - 1.0) * step_s

    def _decodes(self, replica: ReplicaView) -> tuple[int, int]:
        """Returns the sequences that would decode beside a request, and their context tokens."""
        steps = self._steps
        decoding = (replica.outstanding - replica.prefilling) // steps.ranks
        beside = min(decoding, steps.max_num_seqs - 1)
        return beside, replica.decode_blocks * steps.block_size // steps.ranks
