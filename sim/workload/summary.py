"""What can be said about a workload: its broken promises and its statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynosim.sim.workload.prefix_chains import is_chained

if TYPE_CHECKING:
    from dynosim.hardware_models.arrays import IntArray
    from dynosim.sim.workload.columns import Workload


def problems(load: Workload) -> list[str]:
    """Returns the promises of ``Workload`` that this one breaks, in words; empty if sound."""
    return _shape_problems(load) or _value_problems(load) or _prefix_problems(load)


def _shape_problems(load: Workload) -> list[str]:
    n = len(load.arrival_s)
    expected = {
        "arrival_s": (np.float64, n),
        "input_tokens": (np.int64, n),
        "output_tokens": (np.int64, n),
        "prefix_ids": (np.int64, len(load.prefix_ids)),
        "prefix_offsets": (np.int64, n + 1),
    }
    for name in ("priority", "session", "clients"):
        if getattr(load, name) is not None:
            expected[name] = (np.int64, n)
    found = []
    for column, (dtype, size) in expected.items():
        values = getattr(load, column)
        if values.dtype != dtype or values.shape != (size,):
            wanted = f"{np.dtype(dtype)} of shape ({size},)"
            found.append(f"{column} is {values.dtype} of shape {values.shape}, allowed: {wanted}")
    return found if n else ["there are no requests, allowed: at least one"]


def _value_problems(load: Workload) -> list[str]:
    arrival = load.arrival_s
    rules = {
        "arrival_s must be finite and >= 0": bool(np.isfinite(arrival).all() and arrival[0] >= 0),
        "arrival_s must not decrease": not bool((np.diff(arrival) < 0).any()),
        "input_tokens must be >= 1": bool(load.input_tokens.min() >= 1),
        "output_tokens must be >= 1": bool(load.output_tokens.min() >= 1),
        "max_concurrency must be >= 1": load.max_concurrency is None or load.max_concurrency >= 1,
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    problem = load.turns.problem() if load.turns is not None else None
    return [*broken, problem] if problem else broken


def _prefix_problems(load: Workload) -> list[str]:
    offsets, block = load.prefix_offsets, load.prefix_block_tokens
    counts = np.diff(offsets)
    if offsets[0] != 0 or offsets[-1] != len(load.prefix_ids) or (counts < 0).any():
        return ["prefix_offsets must rise from 0 to len(prefix_ids)"]
    if len(load.prefix_ids) and block < 1:
        return ["prefix_block_tokens must be >= 1 where there are prefix_ids"]
    if (counts * block > load.input_tokens).any():
        row = int(np.argmax(counts * block > load.input_tokens))
        return [f"request {row} has more prefix blocks than its prompt fills"]
    if not is_chained(load.prefix_ids, offsets):
        return ["one prefix id stands for two different prefixes"]
    return []


def describe(load: Workload) -> dict[str, object]:
    """Returns the statistics that :meth:`Workload.describe` documents."""
    gaps = np.diff(load.arrival_s)
    duration_s = float(load.arrival_s[-1] - load.arrival_s[0])
    paced = duration_s > 0 and len(gaps) > 1
    return {
        "name": load.name,
        "num_requests": len(load),
        "duration_s": duration_s,
        "rate_req_s": len(gaps) / duration_s if duration_s else None,
        "interarrival_cv": float(gaps.std() / gaps.mean()) if paced else None,
        "max_concurrency": load.max_concurrency,
        "input_tokens": _lengths(load.input_tokens),
        "output_tokens": _lengths(load.output_tokens),
        **_ideal_shares(load),
        "notes": list(load.notes),
    }


def _lengths(tokens: IntArray) -> dict[str, float]:
    p50, p95 = np.quantile(tokens, [0.5, 0.95])
    return {"mean": float(tokens.mean()), "p50": float(p50), "p95": float(p95)}


def ideal_prefix_hits(load: Workload) -> int:
    """Returns the prompt blocks that an infinite prefix cache holds, first come first.

    A block hits if an earlier request had its id; as an id implies all ids before it, every
    occurrence but the first hits.
    """
    return len(load.prefix_ids) - len(np.unique(load.prefix_ids))


def _ideal_shares(load: Workload) -> dict[str, float]:
    hits, size = ideal_prefix_hits(load), max(load.prefix_block_tokens, 1)
    return {
        "ideal_prefix_hit_share_blocks": hits / int((-(-load.input_tokens // size)).sum()),
        "ideal_prefix_hit_share_tokens": hits * size / int(load.input_tokens.sum()),
    }
