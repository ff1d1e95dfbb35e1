"""The balancer interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class RankView(Protocol):
    """What a balancer may see of a data-parallel rank."""

    @property
    def outstanding(self) -> int:
        """Requests sent to the rank and not yet finished."""
        ...

    @property
    def waiting(self) -> int:
        """Those of them that are not running."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompts of all of them."""
        ...


class Balancer(Protocol):
    """Returns, per request, the index of the rank that serves it.

    ``is_blind`` tells that the choice depends on nothing but the order of the requests.
    """

    is_blind: bool

    def choose(self, ranks: Sequence[RankView], /) -> int:
        """Returns a rank's index for the next request."""
        ...
