"""How many tokens the running requests will still generate, as SGLang's admission guesses it."""

from __future__ import annotations

from dynosim.sim.engine.sglang_rules import SglangRules


class OutputEstimate:
    """A share, the new-token ratio, of the tokens that running requests may still generate.

    The ratio starts high, falls with every decode step down to a lowest value, and is set anew when
    requests are retracted. Of each request at most ``clip_max_new_tokens`` count. Steps are
    numbered as in the decode set; queries cost O(requests that exceed that).
    """

    __slots__ = (
        "_base",
        "_base_step",
        "_clip",
        "_decay",
        "_ends",
        "_highest",
        "_long",
        "_lowest",
        "_sum_of_ends",
    )

    def __init__(self, rules: SglangRules, conservativeness: float) -> None:
        self._highest = min(rules.init_new_token_ratio * conservativeness, 1.0)
        self._lowest = self._highest * rules.min_new_token_ratio_factor
        self._decay = (self._highest - self._lowest) / rules.new_token_ratio_decay_steps
        self._clip = rules.clip_max_new_tokens
        self._base = self._highest
        self._base_step = 0
        # The step with which each request ends; and those far from it.
        self._ends: dict[int, int] = {}
        self._sum_of_ends = 0
        self._long: dict[int, int] = {}

    def __contains__(self, request: int) -> bool:
        return request in self._ends

    def add(self, request: int, step: int, tokens: int) -> None:
        """Counts a request that may still generate ``tokens`` after ``step``."""
        self._ends[request] = end = step + tokens
        self._sum_of_ends += end
        if tokens > self._clip:
            self._long[request] = end

    def remove(self, request: int) -> None:
        """Forgets a request."""
        self._sum_of_ends -= self._ends.pop(request)
        self._long.pop(request, None)

    def tokens(self, step: int) -> float:
        """Returns the tokens that are expected after ``step``."""
        possible = self._sum_of_ends - len(self._ends) * step
        for request, end in tuple(self._long.items()):
            excess = end - step - self._clip
            if excess > 0:
                possible -= excess
            else:
                del self._long[request]
        return possible * self.ratio(step)

    def ratio(self, step: int) -> float:
        """Returns the new-token ratio before ``step`` is formed."""
        # From a count, so that it does not depend on how many steps were taken at once.
        fallen = self._base - self._decay * (step - self._base_step)
        return fallen if fallen > self._lowest else self._lowest

    def skip_step(self) -> None:
        """Leaves the ratio as it is for one step."""
        self._base_step += 1

    def restart(self, ratio: float | None, step: int) -> None:
        """Lets the ratio fall from ``ratio`` (None: its highest) with the steps after ``step``."""
        self._base = self._highest if ratio is None else ratio
        self._base_step = step
