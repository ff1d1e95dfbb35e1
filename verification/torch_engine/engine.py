"""The engine: a scheduler, and something that computes its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dynosim.hardware_models.errors import UserError
from dynosim.sim.engine.limits import EngineLimits
from dynosim.verification.stepped.engine import EngineStep, Work
from dynosim.verification.torch_engine.request import Request
from dynosim.verification.torch_engine.scheduler import Batch, Scheduler


class Runner(Protocol):
    """Computes batches."""

    def run(self, batch: Batch) -> dict[Request, int]:
        """Computes a batch's tokens; returns the next token of every request that has none left
        to compute."""
        ...

    def facts(self) -> Mapping[str, float | str]:
        """Returns what computes."""
        ...


class BuiltinEngine:
    """A :class:`~dynosim.verification.stepped.engine.StepEngine`."""

    def __init__(self, limits: EngineLimits, num_blocks: int, runner: Runner) -> None:
        self._scheduler = Scheduler(limits, num_blocks)
        self._runner = runner

    def add(self, request_id: int, prompt_token_ids: Sequence[int], max_tokens: int) -> None:
        """Queues a request; UserError where it could never have enough KV blocks."""
        pool = self._scheduler.pool
        # The last token is sampled, and never computed.
        needed = len(prompt_token_ids) + max_tokens - 1
        if needed > pool.num_blocks * pool.block_size:
            raise UserError(
                f"{needed:,} tokens of KV, but the cache holds "
                f"{pool.num_blocks * pool.block_size:,}",
                where=f"request {request_id}",
                hint="a larger cache, or shorter requests",
            )
        self._scheduler.waiting.append(Request(request_id, prompt_token_ids, max_tokens))

    def step(self) -> EngineStep:
        """Forms a batch and computes it."""
        scheduler = self._scheduler
        batch = scheduler.schedule()
        work = tuple(Work(r.number, tokens, r.computed) for r, tokens in batch.work)
        sampled = self._runner.run(batch) if batch.work else {}
        ended = scheduler.settle(batch, sampled)
        return EngineStep(
            work=work,
            new_tokens={request.number: 1 for request in sampled},
            finished=tuple(request.number for request in ended),
            preempted=tuple(request.number for request in batch.preempted),
        )

    def forget(self) -> None:
        """Empties the prefix cache."""
        self._scheduler.pool.forget_all()

    def facts(self) -> Mapping[str, float | str]:
        """Returns the size of the KV cache, and what computes."""
        pool = self._scheduler.pool
        return {"kv_cache_tokens": pool.num_blocks * pool.block_size, **self._runner.facts()}
