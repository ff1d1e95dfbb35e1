"""From the rows of a trace to a workload: order, ticks, rate, limit, and whole prefix blocks."""

from __future__ import annotations

import math

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.random_streams import stream
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.prefix_chains import cut_rows, is_chained, offsets_of, rechain, take_rows
from dynosim.sim.workload.trace_rows import NS_PER_S, TraceRows
from dynosim.sim.workload.turns import Turns

# A grid is recognised where this share of gaps lies within this part of a step of a multiple of
# the gap at this quantile. A Poisson stream meets the tolerance with 2 % of its gaps.
SHORT_GAP = 0.05
OFF_GRID = 0.01
ON_GRID_SHARE = 0.95


def replay(
    rows: TraceRows,
    *,
    name: str,
    rate_scale: float = 1.0,
    jitter_ticks: bool = False,
    limit: int | None = None,
    seed: int = 0,
) -> Workload:
    """Returns the workload that replays ``rows``; parameters as in ``read_trace``."""
    if not (rate_scale > 0 and math.isfinite(rate_scale)):
        raise UserError(f"{rate_scale}", where="rate_scale", hint="allowed: a finite number > 0")
    if limit is not None and limit < 1:
        raise UserError(f"{limit}", where="limit", hint="allowed: a whole number >= 1")
    kept = np.argsort(rows.arrival_ns, kind="stable")[:limit]
    arrival_s = _seconds(rows.arrival_ns[kept], _jitter(rows, seed)[kept] if jitter_ticks else None)
    ids, offsets, notes = _prefixes(rows, kept)
    return Workload(
        name=name,
        arrival_s=arrival_s / rate_scale,
        input_tokens=rows.input_tokens[kept],
        output_tokens=rows.output_tokens[kept],
        prefix_ids=ids,
        prefix_offsets=offsets,
        prefix_block_tokens=rows.block_tokens,
        session=None if rows.session is None else rows.session[kept],
        turns=_turns(rows, kept),
        notes=rows.notes + notes,
    ).check()


def _turns(rows: TraceRows, kept: IntArray) -> Turns | None:
    """Returns which of the kept rows wait for which; a turn arrives with the one before it."""
    if rows.turns is not None:
        return rows.turns.kept(kept)
    if rows.previous is None or rows.think_s is None:
        return None
    place = np.full(len(rows.arrival_ns) + 1, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    return Turns.chained(place[rows.previous[kept]], rows.think_s[kept])


def _seconds(arrival_ns: IntArray, jitter_s: FloatArray | None) -> FloatArray:
    arrival_s: FloatArray = (arrival_ns - arrival_ns[0]) / NS_PER_S
    if jitter_s is None:
        return arrival_s
    # Sorting times alone keeps the trace's order of requests, so no turn overtakes its elder.
    arrival_s = np.sort(arrival_s + jitter_s)
    arrival_s -= arrival_s[0]
    return arrival_s


def _jitter(rows: TraceRows, seed: int) -> FloatArray:
    """Returns seconds to add to each row that shares its stamp, 0 for the others.

    Drawn for all rows, so that ``limit`` changes none of them.
    """
    stamps, which, sharing = np.unique(rows.arrival_ns, return_inverse=True, return_counts=True)
    spread = stream(seed, "tick jitter").random(len(which)) * tick_s(stamps)
    return np.where(sharing[which] > 1, spread, 0.0)


def tick_s(stamps_ns: IntArray) -> float:
    """Returns the width in seconds of the grid on which ascending, distinct stamps lie.

    A grid whose stamps are off by a unit (Mooncake's conversation trace: 3,000 ± 1 ms) is told by
    nearly all gaps being near a multiple of the short ones; otherwise the grid is the unit of the
    stamps themselves, their greatest common divisor. 0 if there is but one stamp.
    """
    gaps = np.diff(stamps_ns)
    if not len(gaps):
        return 0.0
    short = float(np.quantile(gaps, SHORT_GAP))
    steps = np.maximum(np.rint(gaps / short), 1.0)
    regular = np.abs(gaps - steps * short) <= OFF_GRID * short
    if regular.mean() >= ON_GRID_SHARE:
        return float(gaps.sum() / steps.sum()) / NS_PER_S
    return float(np.gcd.reduce(gaps)) / NS_PER_S


def _prefixes(rows: TraceRows, kept: IntArray) -> tuple[IntArray, IntArray, tuple[str, ...]]:
    if not rows.block_tokens:
        return np.empty(0, np.int64), offsets_of(np.zeros(len(kept), np.int64)), ()
    ids, offsets = take_rows(rows.hash_ids, rows.hash_offsets, kept)
    # A last, partial block cannot be shared.
    ids, offsets = cut_rows(ids, offsets, rows.input_tokens[kept] // rows.block_tokens)
    if is_chained(ids, offsets):
        return ids, offsets, ()
    return rechain(ids, offsets), offsets, ("hash_ids that stood for several prefixes were split",)
