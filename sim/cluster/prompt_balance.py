"""When TensorRT-LLM's attention-DP ranks let prompts in: best all in the same step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RankState:
    """Whether a rank has a prompt that could run now, generates, and has a slot left.

    A rank without requests counts as generating: it runs a dummy request.
    """

    has_prompt: bool
    generates: bool
    has_slot: bool


class PromptBalance:
    """Holds prompts until every rank has one, at most for ``timeout_iters`` steps.

    Once all have one, ``batching_wait_iters`` further steps may gather more. The count of steps
    runs on while nobody waits, as in ``_balance_adp_requests`` of the source: whoever comes alone
    waits for half of ``timeout_iters`` on average.
    """

    def __init__(self, timeout_iters: int, batching_wait_iters: int) -> None:
        self._timeout_iters = timeout_iters
        self._batching_wait_iters = batching_wait_iters
        self._waited = self._batched = 0
        self._resets = False

    def steps_to_wait(self, ranks: Sequence[RankState], last_steps: int) -> int:
        """Returns how many steps prompts are held from now on, 0: they go; in the state of now.

        ``last_steps`` ran since the last call, all in the state of then.
        """
        generate = all(r.generates for r in ranks)
        if all(r.has_slot and r.has_prompt for r in ranks):
            self._waited, self._resets = 0, True
            return self._wait_for_more(last_steps) if generate else 0
        self._batched = 0
        if not generate:
            self._waited, self._resets = 0, True
            return 0
        self._count(last_steps)
        self._resets = False
        if self._waited >= self._timeout_iters:
            self._waited = 0
            return 0
        return self._timeout_iters - self._waited

    def _count(self, last_steps: int) -> None:
        """Counts this step, and those of the last run but the first, which was counted then."""
        if self._resets:
            self._waited = 1
        else:
            further = self._waited + max(0, last_steps - 1)
            self._waited = further % max(1, self._timeout_iters) + 1

    def _wait_for_more(self, last_steps: int) -> int:
        if self._batched:
            self._batched += last_steps
        else:
            self._batched = 1
        left = self._batching_wait_iters - self._batched + 1
        if left <= 0:
            self._batched = 0
        return max(0, left)
