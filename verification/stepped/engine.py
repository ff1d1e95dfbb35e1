"""What a stepped run asks of an engine, and what the engine answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Work:
    """One request's share of a step: ``tokens`` computed behind ``context_tokens``."""

    request: int
    tokens: int
    context_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineStep:
    """What one step of an engine did.

    ``work`` is the batch in the order in which it was scheduled; ``new_tokens`` how many answer
    tokens each request got, ``finished`` those that got their last one. ``preempted`` lost their
    blocks for this step. ``own_s`` is the step's cost where the engine timed it itself, e.g. in
    another process.
    """

    work: tuple[Work, ...]
    new_tokens: Mapping[int, int]
    finished: tuple[int, ...] = ()
    preempted: tuple[int, ...] = ()
    own_s: float | None = None


class StepEngine(Protocol):
    """An engine that does nothing between two calls of :meth:`step`."""

    def add(self, request_id: int, prompt_token_ids: Sequence[int], max_tokens: int) -> None:
        """Queues a request whose answer has exactly ``max_tokens`` tokens."""
        ...

    def step(self) -> EngineStep:
        """Runs one step; it is called only while some request is unfinished."""
        ...

    def forget(self) -> None:
        """Empties the prefix cache, so that runs do not warm each other; no request is there."""
        ...

    def facts(self) -> Mapping[str, float | str]:
        """Returns what the engine says of itself, e.g. ``kv_cache_tokens``."""
        ...
