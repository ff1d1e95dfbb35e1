"""Step times of ranks that step together, for who predicts them."""

from __future__ import annotations

from dynosim.hardware_models.timing.data_parallel import RankRun
from dynosim.sim.cluster.rank_group import GroupTimer


class LockstepTimes:
    """Seconds of steps that all ranks of a group take alike."""

    def __init__(self, timer: GroupTimer) -> None:
        self._timer = timer

    def prefill_attention_s(self, chunk_tokens: int, prefix_tokens: int, /) -> float:
        """Returns a rank's own attention seconds."""
        return self._timer.own.prefill_attention_s(chunk_tokens, prefix_tokens)

    def step_s(
        self,
        new_tokens: int,
        num_logits: int,
        prefill_attention_s: float,
        num_decode: int,
        context_tokens: int,
        /,
    ) -> float:
        """Returns seconds of a step in which every rank does this."""
        own_s = self._timer.own.step_s(
            new_tokens, num_logits, prefill_attention_s, num_decode, context_tokens
        )
        return self._run_s(RankRun(new_tokens, num_logits, own_s, 0.0, 1, False))

    def decode_line(self, num_decode: int, context_tokens: int, /) -> tuple[float, float, float]:
        """Returns seconds of a step in which every rank decodes so many, with no line behind it."""
        own_s, _, _ = self._timer.own.decode_line(num_decode, context_tokens)
        run = RankRun(num_decode, num_decode, own_s, 0.0, 1, True)
        return self._run_s(run), 0.0, context_tokens

    def _run_s(self, run: RankRun) -> float:
        return self._timer.run([run] * self._timer.ranks)[0]
