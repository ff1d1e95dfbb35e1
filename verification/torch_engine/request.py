"""A request in the engine."""

from __future__ import annotations

from array import array
from collections.abc import Sequence


class Request:
    """Its tokens, how many of them are computed, and the KV blocks that hold those.

    ``tokens`` are the prompt's and the answer's so far. ``names`` identify the full blocks that are
    findable by others, from the first. ``blocks`` are 32-bit numbers, for tensors made of them.
    """

    __slots__ = ("blocks", "computed", "max_tokens", "names", "number", "prompt_tokens", "tokens")

    def __init__(self, number: int, prompt: Sequence[int], max_tokens: int) -> None:
        self.number = number
        self.tokens = list(prompt)
        self.prompt_tokens = len(self.tokens)
        self.max_tokens = max_tokens
        self.computed = 0
        self.blocks = array("i")
        self.names: list[int] = []

    @property
    def missing(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return len(self.tokens) - self.computed

    @property
    def has_ended(self) -> bool:
        """Whether the answer is complete."""
        return len(self.tokens) == self.prompt_tokens + self.max_tokens
