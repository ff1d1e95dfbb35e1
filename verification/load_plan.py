"""The requests that a verification sends, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynosim.sim.workload.turns import Turns


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """What is sent to an engine, in the order in which it is sent.

    ``prompts`` holds each request's prompt token ids; requests that share a prefix in the workload
    share its tokens here. ``output_tokens`` is the exact length of each answer (``ignore_eos``).
    ``send_s`` is each request's time after the start, non-decreasing; None where requests are sent
    as ``max_concurrency`` slots become free. Where both are there, a request is sent at its time or
    when a slot frees, whichever is later. The first ``warmup`` requests are sent before the
    start and are not part of what is measured.

    ``priority`` is each request's, lower first, None for none. ``turns`` says by their places here
    which requests wait for the answers of others. ``shared_tokens`` are the prompt tokens that an
    endless prefix cache would have of earlier requests, None where that is not known.
    """

    prompts: tuple[Sequence[int], ...]
    output_tokens: tuple[int, ...]
    send_s: tuple[float, ...] | None
    max_concurrency: int | None
    warmup: int = 0
    priority: tuple[int, ...] | None = None
    turns: Turns | None = None
    shared_tokens: int | None = None

    def __len__(self) -> int:
        return len(self.prompts)
