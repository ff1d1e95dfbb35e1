"""Little's law over an engine's curve: decodes in flight, rates and waits, by candidate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.search.estimate.engine_curve import EngineCurve
from dynosim.search.estimate.load import Load

P99_OF_EXPONENTIAL = float(np.log(100.0))
"""99th percentile of an exponential wait over its mean."""

MOST_PREFILL = 0.98
"""Share of the time that prefill may take; at 1 there would be no decodes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SteadyState:
    """One engine in the long run; every array has one element a candidate.

    ``use`` is the arrival rate over the rate it can serve; above 1 the queue grows for as long as
    requests arrive (0 in a closed loop, which sends no faster than it is served).
    """

    rate_req_s: FloatArray
    use: FloatArray
    tpot_s: FloatArray
    mean_wait_s: FloatArray
    p99_wait_s: FloatArray
    mean_prefill_s: FloatArray
    p99_prefill_s: FloatArray
    p99_gap_s: FloatArray


def steady_state(
    curve: EngineCurve, load: Load, *, slots: FloatArray, replicas: FloatArray
) -> SteadyState:
    """Returns where engines settle that hold ``slots`` sequences, ``replicas`` of them alike.

    B decodes of O tokens each finish at rate B / (O t(B) + B P(B)): t is the step of B decodes,
    P what a prompt adds. In an open loop B is the smallest whose rate is the arrivals'.
    """
    sizes = np.arange(1, len(curve.decode_s), dtype=np.float64)
    each_s = load.output_tokens * curve.decode_s[1:] + sizes * curve.prefill_s[1:]
    served = np.maximum.accumulate(sizes / each_s)
    slots = np.clip(slots, 1, len(sizes))
    most = served[slots.astype(np.int64) - 1]
    arriving = np.full(len(slots), load.rate_req_s) / replicas
    if np.isfinite(load.in_flight):
        share = np.maximum(load.in_flight / replicas, 1.0)
        decoding = np.minimum(share, slots)
        rate = np.minimum(np.interp(decoding, sizes, served), arriving)
        use = np.zeros(len(slots))
    else:
        share = np.full(len(slots), np.inf)
        rate = np.minimum(arriving, most)
        use = arriving / most
        # Below one decode in flight the step of one is what there is.
        decoding = np.clip(np.interp(rate, served, sizes), 1.0, slots)
    wait_s, p99_wait_s = _waits(curve, load, decoding, rate, slots, use, share)
    busy = np.minimum(rate * _at(curve.prefill_s, decoding), MOST_PREFILL)
    tpot_s = _at(curve.decode_s, decoding) / (1.0 - busy)
    return SteadyState(
        rate_req_s=rate,
        use=use,
        tpot_s=tpot_s,
        mean_wait_s=wait_s,
        p99_wait_s=p99_wait_s,
        mean_prefill_s=_at(curve.mean_answer_s, decoding),
        p99_prefill_s=_at(curve.long_answer_s, decoding),
        p99_gap_s=_at(curve.gap_s, decoding),
    )


def _at(values: FloatArray, size: FloatArray) -> FloatArray:
    return np.asarray(np.interp(size, np.arange(len(values)), values))


def _waits(
    curve: EngineCurve,
    load: Load,
    decoding: FloatArray,
    rate: FloatArray,
    slots: FloatArray,
    use: FloatArray,
    share: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Returns mean and p99 of the seconds before a request's first chunk."""
    step_s, prefill_s = _at(curve.decode_s, decoding), _at(curve.prefill_s, decoding)
    busy = np.minimum(rate * prefill_s, MOST_PREFILL)
    # Prompts queue for the steps: Pollaczek and Khinchine with the arrivals' own dispersion.
    queue_s = busy / (1.0 - busy) * prefill_s * (load.burstiness + 0.5) / 2.0
    hold_s = load.output_tokens * step_s / (1.0 - busy) + prefill_s
    below = np.minimum(use, 0.995)
    # Slots: Sakasegawa's approximation of G/G/c.
    spread = (load.burstiness + load.output_cv2) / 2.0
    slot_s = below ** (np.sqrt(2.0 * (slots + 1.0)) - 1.0) / (slots * (1.0 - below))
    slot_s = slot_s * hold_s * spread * (use > 0.0)
    # In a closed loop those beyond the slots wait for one, in turn.
    beyond = np.where(np.isfinite(share), np.maximum(share - slots, 0.0), 0.0)
    turn_s = beyond / np.maximum(rate, 1e-12)
    # Beyond what can be served the backlog grows until the last arrival.
    over = np.maximum(use - 1.0, 0.0) * load.span_s
    mean = step_s / 2.0 + queue_s + slot_s + turn_s + over / 2.0
    tail = step_s + (queue_s + slot_s) * P99_OF_EXPONENTIAL + turn_s + over
    return mean, tail
