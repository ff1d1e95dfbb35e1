"""One measured run as a benchmark tool reports it, in this project's names and units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dynosim.hardware_models.errors import UserError

Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """The load that a tool sent, and what it measured under :mod:`dynosim.sim.metrics`' names.

    ``request_rate`` is None where all requests were sent at once or as slots became free.
    ``burstiness`` is the gamma shape, infinite for a constant rate. ``lengths`` are (prompt,
    answer) tokens a request where the file lists them, ``arrival_s`` when each was sent, from the
    first, where it was sent at a time of its own. ``failed`` is how many requests got no whole
    answer, where the file says so.
    """

    tool: str
    where: str
    num_prompts: int
    input_tokens: float
    output_tokens: float
    measured: Mapping[str, float]
    request_rate: float | None = None
    max_concurrency: int | None = None
    burstiness: float = 1.0
    model: str | None = None
    failed: int = 0
    lengths: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    arrival_s: tuple[float, ...] = field(default=(), repr=False)


def number(document: Document, path: str, where: str) -> float:
    """Returns the number at ``a.b.c``; UserError where there is none."""
    found = optional(document, path)
    if found is None:
        raise UserError(f"{path} is missing or no number", where=where)
    return found


def optional(document: Document, path: str) -> float | None:
    """Returns the number at ``a.b.c``, None where there is none. Infinity may be a word."""
    value: Any = document
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, str) and value.lower() in ("inf", "infinity"):
        return math.inf
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and not math.isnan(value) else None


def finite(value: float | None) -> float | None:
    """Returns a finite number, else None."""
    return value if value is not None and math.isfinite(value) else None


def measured(document: Document, names: Mapping[str, tuple[str, float]]) -> dict[str, float]:
    """Returns metric -> value x factor for every metric whose (path, factor) leads to a number."""
    found = {}
    for metric, (path, factor) in names.items():
        value = finite(optional(document, path))
        if value is not None and value > 0:
            found[metric] = value * factor
    return found
