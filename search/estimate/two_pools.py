"""Prefill and decode pools in the long run: two queues in a row, by Little's law."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.search.estimate.engine_curve import EngineCurve
from dynosim.search.estimate.load import Load
from dynosim.search.estimate.steady_state import (
    MOST_PREFILL,
    P99_OF_EXPONENTIAL,
    SteadyState,
    steady_state,
)

_ROUNDS = 8
"""A closed loop's requests are shared out between the pools anew so often."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolCurve:
    """One pool: its engines' curve, the sequences that one holds, and how many there are."""

    curve: EngineCurve
    slots: float
    replicas: float


def two_pools(prefill: PoolCurve, decode: PoolCurve, load: Load, transfer_s: float) -> SteadyState:
    """Returns where both pools settle together; arrays of one element, rates of all replicas.

    Prompts queue for prefill engines (Pollaczek and Khinchine), answers for the decode engines'
    slots; the narrower pool sets the rate. ``transfer_s`` counts as prefill.
    """
    prompt_s = float(prefill.curve.prefill_s[0])
    answer_s = float(prefill.curve.mean_answer_s[0]) + transfer_s
    long_s = float(prefill.curve.long_answer_s[0]) + transfer_s
    most = prefill.replicas / prompt_s
    if np.isfinite(load.in_flight):
        return _closed(decode, load, most, answer_s, long_s)
    busy = min(load.rate_req_s / most, MOST_PREFILL)
    queue_s = busy / (1.0 - busy) * prompt_s * (load.burstiness + 0.5) / 2.0
    use = load.rate_req_s / most
    over_s = max(use - 1.0, 0.0) * load.span_s
    state = _decode(decode, load, load.in_flight)
    step_s = float(state.tpot_s[0])
    return SteadyState(
        rate_req_s=np.minimum(state.rate_req_s * decode.replicas, most),
        use=np.maximum(state.use, use),
        tpot_s=state.tpot_s,
        mean_wait_s=state.mean_wait_s + queue_s + over_s / 2.0,
        p99_wait_s=state.p99_wait_s + queue_s * P99_OF_EXPONENTIAL + over_s,
        mean_prefill_s=_one(answer_s + step_s),
        p99_prefill_s=_one(long_s + step_s),
        p99_gap_s=state.p99_gap_s,
    )


def _closed(
    decode: PoolCurve, load: Load, most: float, answer_s: float, long_s: float
) -> SteadyState:
    decoding = load.in_flight
    rate = 0.0
    for _ in range(_ROUNDS):
        state = _decode(decode, load, max(decoding, 1.0))
        rate = min(float(state.rate_req_s[0]) * decode.replicas, most, load.rate_req_s)
        stay_s = answer_s + load.output_tokens * float(state.tpot_s[0])
        # Those who are not decoding are prefilled, or wait for it.
        decoding = 0.5 * (decoding + load.in_flight - rate * min(answer_s, load.in_flight / rate))
        if rate >= most:
            decoding = min(decoding, rate * load.output_tokens * float(state.tpot_s[0]))
    wait_s = max(load.in_flight / rate - stay_s, 0.0)
    step_s = float(state.tpot_s[0])
    return replace(
        state,
        rate_req_s=_one(rate),
        mean_wait_s=_one(wait_s),
        p99_wait_s=_one(2.0 * wait_s),
        mean_prefill_s=_one(answer_s + step_s),
        p99_prefill_s=_one(long_s + step_s),
    )


def _decode(decode: PoolCurve, load: Load, in_flight: float) -> SteadyState:
    """Returns the decode pool alone, whose prompts cost it nothing."""
    free = np.full_like(decode.curve.prefill_s, 1e-9)
    # No prompt comes between two of its tokens.
    curve = replace(decode.curve, prefill_s=free, gap_s=decode.curve.decode_s)
    own = replace(load, in_flight=in_flight)
    return steady_state(curve, own, slots=_one(decode.slots), replicas=_one(decode.replicas))


def _one(value: float) -> FloatArray:
    return np.array([value], dtype=np.float64)
