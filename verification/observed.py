"""What a measurement saw of every request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ObservedRequest:
    """One request as its client saw it; times in seconds after the start of the load.

    ``index`` is its place in the :class:`LoadPlan`. ``planned_s`` is when it should have been sent
    (its slot became free, in a closed loop), ``sent_s`` when it was. ``token_s`` is when each
    answer token arrived; tokens that arrive together have the same time. ``error`` says why there
    is no whole answer, None where there is one.
    """

    index: int
    planned_s: float
    sent_s: float
    token_s: Sequence[float]
    input_tokens: int
    error: str | None = None

    @property
    def output_tokens(self) -> int:
        """Answer tokens that arrived."""
        return len(self.token_s)


@dataclass(frozen=True, kw_only=True)
class ObservedRun:
    """One measurement of one candidate under one load.

    ``clock`` names what times were read from (``wall``, ``process-cpu``, ``cuda``). ``notes`` are
    things a reader should know (a wrong model name, throttled clocks, a warm cache). ``facts`` are
    what the engine said of itself, e.g. ``kv_cache_tokens``.
    """

    requests: tuple[ObservedRequest, ...]
    duration_s: float
    clock: str
    notes: tuple[str, ...] = ()
    facts: Mapping[str, float | str] = field(default_factory=dict)
