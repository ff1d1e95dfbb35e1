"""How many tokens each verification of speculative decoding gives a request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.engine.step_sums import differences
from dynosim.sim.random_streams import draws


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """``num_tokens`` drafts per sequence and step, of which a random number is accepted.

    ``acceptance`` are the shares of verifications that accept at least 1, 2, ... of them.
    ``lookahead_tokens`` KV slots are reserved beyond those of a verification, but none beyond
    ``max_model_len``.
    """

    num_tokens: int
    acceptance: tuple[float, ...]
    lookahead_tokens: int = 0
    max_model_len: int = 1 << 60
    seed: int = 0

    @property
    def query_tokens(self) -> int:
        """Tokens that a verification computes per sequence."""
        return self.num_tokens + 1

    def tokens(self, request: int, emitted: int, wanted: int) -> IntArray:
        """Returns the tokens of each verification until ``wanted`` more are out; they sum to that.

        The request has ``emitted`` so far. Nothing else enters: how many sequences run beside it
        and how many steps are taken at once does not. Drafts beyond the answer's end are lost.
        """
        return differences(self.out(request, emitted, wanted), 0)

    def out(self, request: int, emitted: int, wanted: int) -> IntArray:
        """Returns the running sum of :meth:`tokens`."""
        chance = draws(self.seed, "acceptance", (emitted, request), wanted)
        # Of the shares, ascending, those above the draw are the drafts that are accepted.
        refused = np.searchsorted(self.acceptance[::-1], chance, side="right")
        out = (self.query_tokens - refused).cumsum()
        last = int(out.searchsorted(wanted))
        out[last] = wanted
        return out[: last + 1]
