"""How long TensorRT-LLM holds prompts back so that more of them share a step."""

from __future__ import annotations


class BatchWait:
    """Holds prompts for up to ``timeout_iters`` steps, or until they have ``least_tokens``.

    Nobody is held while nothing generates: without steps, no step would come.
    """

    __slots__ = ("_least_tokens", "_since_step", "_timeout_iters")

    def __init__(self, timeout_iters: int, least_tokens: float) -> None:
        self._timeout_iters = timeout_iters
        self._least_tokens = least_tokens
        self._since_step = -1

    @property
    def is_on(self) -> bool:
        """Whether anything would ever be held back."""
        return self._timeout_iters > 0 and self._least_tokens > 0

    def steps_to_wait(self, step: int, tokens: int) -> int:
        """Returns how many steps a batch of ``tokens`` waits from ``step`` on; 0 lets it go."""
        if self._since_step < 0:
            self._since_step = step
        left = self._timeout_iters - (step - self._since_step)
        if left > 0 and tokens < self._least_tokens:
            return left
        self._since_step = -1
        return 0
