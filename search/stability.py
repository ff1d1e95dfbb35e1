"""Whether a deployment keeps up with its arrivals, or its queue grows for as long as they last."""

from __future__ import annotations

from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.quantiles import median

MIN_REQUESTS = 16
"""Fewer requests say nothing about a trend."""

GROWTH_LIMIT = 0.05
"""Seconds that the queue delay may grow per second of arrivals: a 5 % overload, ρ = 1.05."""

RATIO_LIMIT = 2.0
"""How many times the first quarter's delay the last quarter's may be."""

DRAIN_LIMIT = 0.05
"""Share of the arrival span that the backlog may take to drain after the last arrival."""


def instability(arrival_s: FloatArray, start_s: FloatArray, finish_s: FloatArray) -> float:
    """Returns > 0 where the queue diverges: the share by which the weakest sign exceeds its limit.

    All arrays are seconds, one element a request in arrival order; ``start_s`` is when a request
    left the queue for the first time. With arrival rate λ and service rate μ, ρ = λ/μ > 1 makes
    the delay of a request that arrives at t grow as (ρ − 1)·t and leaves a backlog that takes
    (ρ − 1)·T to drain (the fluid limit; Gross et al., Fundamentals of Queueing Theory). So a run
    is unstable where all of these hold:

    - the median delay of the last quarter of requests exceeds that of the first quarter by more
      than GROWTH_LIMIT × the time between the quarters' middles,
    - it is more than RATIO_LIMIT times the first quarter's,
    - the run ends later than the last arrival plus one median service time by more than
      DRAIN_LIMIT × the arrival span.

    A burst in the middle of a trace fails the third test, a slow single request the first two.
    A batch that arrives at once (no arrival span) has no rate and is never unstable.
    """
    span_s = float(arrival_s[-1] - arrival_s[0]) if len(arrival_s) else 0.0
    if len(arrival_s) < MIN_REQUESTS or span_s <= 0.0:
        return -1.0
    quarter = len(arrival_s) // 4
    delay_s = start_s - arrival_s
    first_s = median(delay_s[:quarter])
    last_s = median(delay_s[-quarter:])
    apart_s = median(arrival_s[-quarter:]) - median(arrival_s[:quarter])
    drain_s = float(finish_s.max() - arrival_s[-1] - median(finish_s - start_s))
    signs = (
        (last_s - first_s) / (GROWTH_LIMIT * max(apart_s, 1e-9)),
        last_s / (RATIO_LIMIT * max(first_s, 1e-9)),
        drain_s / (DRAIN_LIMIT * span_s),
    )
    return min(signs) - 1.0
