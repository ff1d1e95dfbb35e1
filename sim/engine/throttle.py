"""A timer whose steps take longer for a while, as on a node that throttles."""

from __future__ import annotations

from typing import Any

from dynosim.sim.engine.timing import Timer


class ThrottledTimer:
    """Another timer's seconds times ``factor``, from the next step on that is timed."""

    def __init__(self, own: Timer) -> None:
        self._own: Any = own
        self._factor = 1.0
        uneven_s: list[float] | None = getattr(own, "uneven_s", None)
        self._even_s = uneven_s
        # Engines keep this very list.
        self.uneven_s = None if uneven_s is None else list(uneven_s)

    @property
    def factor(self) -> float:
        """How many times as long steps take."""
        return self._factor

    @factor.setter
    def factor(self, factor: float) -> None:
        self._factor = factor
        if self.uneven_s is not None and self._even_s is not None:
            self.uneven_s[:] = [seconds * factor for seconds in self._even_s]

    def prefill_attention_s(self, chunk_tokens: int, prefix_tokens: int, /) -> float:
        """Returns what :meth:`step_s` takes: it is slowed down there."""
        seconds: float = self._own.prefill_attention_s(chunk_tokens, prefix_tokens)
        return seconds

    def step_s(
        self,
        new_tokens: int,
        num_logits: int,
        prefill_attention_s: float,
        num_decode: int,
        context_tokens: int,
        /,
    ) -> float:
        """Returns the other's seconds of the step times the factor."""
        seconds: float = self._own.step_s(
            new_tokens, num_logits, prefill_attention_s, num_decode, context_tokens
        )
        return seconds * self._factor

    def decode_line(self, num_decode: int, context_tokens: int, /) -> tuple[float, float, float]:
        """Returns the other's line, steeper by the factor."""
        seconds, slope_s, limit = self._own.decode_line(num_decode, context_tokens)
        return seconds * self._factor, slope_s * self._factor, limit

    def decode_steps_s(self, num_decode: int, context_tokens: Any, /) -> Any:
        """Returns the other's seconds of steps that verify drafts times the factor."""
        return self._own.decode_steps_s(num_decode, context_tokens) * self._factor
