"""What a prefill batch of SGLang's may still take: tokens of this step, and of the pool."""

from __future__ import annotations


class PrefillBudget:
    """The budget of one prefill batch.

    ``chunk`` is what is left of the chunk size, None without chunked prefill; ``prefill`` what is
    left of the tokens of a batch. ``promised`` tokens of the pool are spoken for: by what running
    requests are expected to generate, by the batch itself, and by what its requests may generate.
    A page of ``page`` tokens is added for each of these, to round up.
    """

    __slots__ = ("_page", "chunk", "prefill", "promised")

    def __init__(self, page: int, chunk: int | None, prefill: int, promised: float) -> None:
        self._page = page
        self.chunk = chunk
        self.prefill = prefill
        self.promised = promised

    def first_chunk(self, tokens: int, is_first: bool) -> int:
        """Returns how many of a new request's ``tokens`` the batch takes; 0 to end the batch."""
        paged = self._paged(tokens)
        if self.chunk is None:
            return tokens if is_first or paged < self.prefill else 0
        if paged <= self.chunk:
            return tokens
        return max(self.chunk, 0) // self._page * self._page

    def spend(self, tokens: int, output_tokens: int) -> None:
        """Takes ``tokens`` for this step, and promises ``output_tokens`` beyond."""
        tokens = self._paged(tokens)
        self.prefill -= tokens
        if self.chunk is not None:
            self.chunk -= tokens
        self.promised += tokens + output_tokens + self._page

    @property
    def is_spent(self) -> bool:
        """Whether this step's tokens are used up."""
        return self.prefill <= 0 or (self.chunk is not None and self.chunk <= 0)

    def _paged(self, tokens: int) -> int:
        return -(-tokens // self._page) * self._page
