"""The rows that a trace reader returns, and the checks all formats share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.turns import Turns

NS_PER_S = 1_000_000_000
# Beyond these a number is no longer exact as a double, or no longer fits 64-bit nanoseconds.
MAX_TOKENS = 2**53
MAX_S = 9e9

Where = Callable[[int], str]


def _no_ids() -> IntArray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class TraceRows:
    """Rows in file order. ``arrival_ns`` is nanoseconds from any origin; ``hash_ids`` and
    ``hash_offsets`` are ragged rows of full and last partial blocks of ``block_tokens`` tokens,
    absent (``block_tokens`` 0) where the format has none. ``session`` numbers the conversations
    that rows are turns of, None where the format does not say. ``previous`` are the rows
    whose answers rows wait for, -1 for none, and ``think_s`` how long after these they come; None
    where nobody waits. ``turns`` stand in for both where a row may wait for several, of which none
    comes after it."""

    arrival_ns: IntArray
    input_tokens: IntArray
    output_tokens: IntArray
    hash_ids: IntArray = field(default_factory=_no_ids)
    hash_offsets: IntArray = field(default_factory=_no_ids)
    block_tokens: int = 0
    session: IntArray | None = None
    previous: IntArray | None = None
    think_s: FloatArray | None = None
    turns: Turns | None = None
    notes: tuple[str, ...] = ()


def token_column(values: FloatArray, name: str, where: Where) -> IntArray:
    """Returns whole token counts; raises ``UserError`` at the first that is not one >= 1."""
    sound = (values >= 1) & (values < MAX_TOKENS) & (values == np.floor(values))
    _refuse_unsound(sound, values, name, where, "a whole number of tokens >= 1")
    return values.astype(np.int64)


def arrival_column(values: FloatArray, name: str, where: Where, *, unit_s: float) -> IntArray:
    """Returns nanoseconds of stamps counted in ``unit_s``; raises ``UserError`` at the first
    that is negative or not finite."""
    sound = (values >= 0) & (values * unit_s < MAX_S)
    unit = {1.0: "seconds", 1e-3: "milliseconds"}[unit_s]
    _refuse_unsound(sound, values, name, where, f"a finite number of {unit} >= 0")
    return np.rint(values * (unit_s * NS_PER_S)).astype(np.int64)


def _refuse_unsound(
    sound: np.typing.NDArray[np.bool_], values: FloatArray, name: str, where: Where, allowed: str
) -> None:
    if not sound.all():
        row = int(np.argmin(sound))
        more = int((~sound).sum()) - 1
        tail = f" (and {more} more such row{'s' * (more > 1)})" if more else ""
        raise UserError(
            f"`{name}` is {values[row]:.15g}{tail}", where=where(row), hint=f"allowed: {allowed}"
        )
