"""A step timer simple enough to check by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AffineTimer:
    """step = base + per_token * new tokens + attention + per_sequence * n + per_context * context.

    With ``knee`` the cost of context doubles beyond that many context tokens, so that leaps meet
    the end of a linear piece.
    """

    base_s: float = 0.005
    per_token_s: float = 20e-6
    per_pair_s: float = 1e-9
    per_sequence_s: float = 31e-6
    per_context_s: float = 0.7e-7
    knee: int = 1 << 60

    def prefill_attention_s(self, chunk_tokens: int, prefix_tokens: int, /) -> float:
        return self.per_pair_s * chunk_tokens * (prefix_tokens + 0.5 * chunk_tokens)

    def step_s(
        self,
        new_tokens: int,
        num_logits: int,
        prefill_attention_s: float,
        num_decode: int,
        context_tokens: int,
        /,
    ) -> float:
        over = max(0, context_tokens - self.knee)
        return (
            self.base_s
            + self.per_token_s * new_tokens
            + prefill_attention_s
            + self.per_sequence_s * num_decode
            + self.per_context_s * (context_tokens + over)
        )

    def decode_line(self, num_decode: int, context_tokens: int, /) -> tuple[float, float, float]:
        seconds = self.step_s(num_decode, num_decode, 0.0, num_decode, context_tokens)
        if context_tokens < self.knee:
            return seconds, self.per_context_s, self.knee
        return seconds, 2 * self.per_context_s, float("inf")
