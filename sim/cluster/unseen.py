"""A replica of which nothing is known yet, as routers see it that are asked ahead of the clock."""

from __future__ import annotations


class Unseen:
    """A replica that the router must choose without looking."""

    def __init__(self, number: int) -> None:
        self.number = number

    @property
    def outstanding(self) -> int:
        """Raises AssertionError: there is no telling before the run."""
        raise AssertionError("a router that is blind looked at a replica")

    prefilling = prefill_tokens = decode_blocks = waiting = outstanding

    @property
    def kv_use(self) -> float:
        """Raises AssertionError."""
        raise AssertionError("a router that is blind looked at a replica")
