"""The rank with the fewest prompt tokens in flight: TensorRT-LLM's rule."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.sim.cluster.balancers.base import Balancer, RankView


class LeastTokens:
    """Counts the prompts of unfinished requests; what these generate is not known to it."""

    is_blind = False

    def choose(self, ranks: Sequence[RankView], /) -> int:
        """Returns the rank of the fewest tokens, then requests; of equals the first."""
        return min(range(len(ranks)), key=lambda i: (ranks[i].prompt_tokens, ranks[i].outstanding))


def make() -> Balancer:
    """Returns TensorRT-LLM's balancer."""
    return LeastTokens()
