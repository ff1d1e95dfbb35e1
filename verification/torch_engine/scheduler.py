"""Who gets how many tokens in a step, by the rules of vLLM's V1 scheduler, first come first served.

They are told in :mod:`dynosim.sim.engine.schedulers.vllm`, which counts blocks where this one hands
them out; ``tests/verification`` holds both, and vLLM's own recorded steps, against each other.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field

from dynosim.hardware_models.errors import UserError
from dynosim.sim.engine.limits import EngineLimits
from dynosim.verification.torch_engine.block_pool import BlockPool
from dynosim.verification.torch_engine.request import Request


@dataclass(frozen=True)
class Batch:
    """The requests of a step with the tokens each computes, and those preempted for it."""

    work: list[tuple[Request, int]] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(tokens for _, tokens in self.work)


class Scheduler:
    """Two queues, a token budget and a pool of blocks."""

    def __init__(self, limits: EngineLimits, num_blocks: int) -> None:
        check_limits(limits)
        self.limits = limits
        self.pool = BlockPool(num_blocks, limits.block_size, caches=limits.enable_prefix_caching)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def schedule(self) -> Batch:
        """Returns the next batch; running requests come first, then those that enter.

        Where the first preempted itself and nobody is left, the batch is formed again at once.
        """
        batch = Batch()
        while True:
            preempted = len(batch.preempted)
            longest = self._longest_chunk()
            self._schedule_running(batch, longest)
            if len(batch.preempted) == preempted:
                self._admit(batch, longest)
            if batch.work or len(batch.preempted) == preempted:
                return batch

    def _longest_chunk(self) -> int:
        threshold = self.limits.long_prefill_token_threshold
        is_alone = len(self.running) + len(self.waiting) == 1
        budget = self.limits.max_num_batched_tokens
        return threshold if threshold and not is_alone else budget

    def _schedule_running(self, batch: Batch, longest: int) -> None:
        budget = self.limits.max_num_batched_tokens
        place = 0
        # Victims come from the end, so that places before them stay what they are.
        while budget > 0 and place < len(self.running):
            request = self.running[place]
            tokens = min(request.missing, budget, longest)
            if self._make_room(request, tokens, batch):
                self._give(request, tokens, batch)
                budget -= tokens
                place += 1

    def _make_room(self, request: Request, tokens: int, batch: Batch) -> bool:
        """Preempts the youngest until blocks for ``tokens`` are free; False: itself was one."""
        while self._lacks(request, tokens) > self.pool.num_free:
            victim = self.running.pop()
            self._preempt(victim)
            batch.preempted.append(victim)
            if victim is request:
                return False
        return True

    def _lacks(self, request: Request, tokens: int) -> int:
        """Returns the blocks that a request needs for further tokens."""
        return self._blocks_of(request.computed + tokens) - len(request.blocks)

    def _blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _give(self, request: Request, tokens: int, batch: Batch) -> None:
        request.blocks.extend(self.pool.take(self._lacks(request, tokens)))
        known = request.computed + tokens
        self.pool.name(request.tokens, known, request.blocks, request.names)
        batch.work.append((request, tokens))

    def _preempt(self, request: Request) -> None:
        self._free(request)
        request.computed = 0
        self.waiting.appendleft(request)

    def _admit(self, batch: Batch, longest: int) -> None:
        """Lets waiting requests in while slots, budget and blocks for all of a prompt last."""
        limits, pool = self.limits, self.pool
        budget = limits.max_num_batched_tokens - batch.tokens
        while self.waiting and budget > 0 and len(self.running) < limits.max_num_seqs:
            request = self.waiting[0]
            blocks, names = pool.find(request.tokens)
            cached = len(blocks) * limits.block_size
            tokens = min(len(request.tokens) - cached, longest)
            if tokens > budget and not limits.enable_chunked_prefill:
                return
            tokens = min(tokens, budget)
            whole = limits.scheduler_reserve_full_isl
            reserved = len(request.tokens) if whole else cached + tokens
            wanted = self._blocks_of(reserved) - len(blocks) + pool.num_unheld(blocks)
            if wanted + self._watermark() > pool.num_free:
                return
            self.waiting.popleft()
            pool.hold(blocks)
            request.blocks, request.names = array("i", blocks), names
            request.computed = cached
            self.running.append(request)
            self._give(request, tokens, batch)
            budget -= tokens

    def _watermark(self) -> int:
        # vLLM takes the fraction of all blocks, its null block among them.
        return int(self.limits.watermark * (self.pool.num_blocks + 1)) if self.running else 0

    def settle(self, batch: Batch, sampled: dict[Request, int]) -> list[Request]:
        """Moves requests on after their step; returns those that ended, their blocks free.

        ``sampled`` has the next token of everyone whose tokens are now all computed.
        """
        for request, tokens in batch.work:
            request.computed += tokens
            if not request.missing:
                request.tokens.append(sampled[request])
        ended = [request for request in self.running if request.has_ended]
        for request in ended:
            self._free(request)
        self.running = [request for request in self.running if not request.has_ended]
        return ended

    def _free(self, request: Request) -> None:
        self.pool.free(request.blocks)
        request.blocks, request.names = array("i"), []


def check_limits(limits: EngineLimits) -> None:
    """Raises UserError for options that this scheduler does not have."""
    wanted = {
        "scheduling_policy": ("fcfs", limits.scheduling_policy),
        "async_scheduling": (False, limits.async_scheduling),
        "speculative_method": (None, "drafts" if limits.drafting else None),
        "backend": ("vllm", limits.scheduler),
    }
    for name, (allowed, found) in wanted.items():
        if found != allowed:
            hint = f"allowed: {str(allowed).lower()}"
            raise UserError(f"the built-in engine has no {found}", where=name, hint=hint)
