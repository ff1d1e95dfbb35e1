"""The timing law under which both simulators do the same work."""

from __future__ import annotations


class PeerLaw:
    """The polynomials of ``dynamo.replay``'s interpolated profile, in seconds.

    A pass takes prefill + decode: prefill ms = 3.0 + 0.0205 n + 1.1e-7 n^2 for n new prompt tokens
    (0 if none), decode ms = 6.0 + 4.5e-5 context tokens + 0.02 decoding sequences (0 if none).
    """

    def prefill_attention_s(self, chunk_tokens: int, prefix_tokens: int, /) -> float:
        """Returns 0: the law does not see prefixes."""
        return 0.0

    def step_s(
        self,
        new_tokens: int,
        num_logits: int,
        prefill_attention_s: float,
        num_decode: int,
        context_tokens: int,
        /,
    ) -> float:
        """Returns the seconds of one pass."""
        n = new_tokens - num_decode
        prefill_ms = 3.0 + (0.0205 + 1.1e-7 * n) * n if n else 0.0
        decode_ms = 6.0 + 4.5e-5 * context_tokens + 0.02 * min(256, num_decode)
        return (prefill_ms + (decode_ms if num_decode else 0.0)) * 1e-3

    def decode_line(self, num_decode: int, context_tokens: int, /) -> tuple[float, float, float]:
        """Returns seconds, slope a token and no limit."""
        return self.step_s(num_decode, 0, 0.0, num_decode, context_tokens), 4.5e-8, float("inf")
