"""What the engine asks of a step timer."""

from __future__ import annotations

from typing import Protocol


class Timer(Protocol):
    """Seconds of engine steps; :class:`dynosim.hardware_models.timing.step_timer.StepTimer` is one.

    ``decode_line`` must agree with ``step_s``: a decode-only step of ``num_decode`` sequences with
    ``S`` tokens of summed context takes ``seconds + slope * (S - context_tokens)`` for every ``S``
    in ``[context_tokens, context_limit]``.
    """

    def prefill_attention_s(self, chunk_tokens: int, prefix_tokens: int, /) -> float:
        """Returns attention seconds of one prefill chunk behind ``prefix_tokens`` of context."""
        ...

    def step_s(
        self,
        new_tokens: int,
        num_logits: int,
        prefill_attention_s: float,
        num_decode: int,
        context_tokens: int,
        /,
    ) -> float:
        """Returns seconds of one step of ``new_tokens`` prefill and decode tokens together."""
        ...

    def decode_line(self, num_decode: int, context_tokens: int, /) -> tuple[float, float, float]:
        """Returns ``(seconds, slope_s_per_token, context_limit)`` of decode-only steps."""
        ...
