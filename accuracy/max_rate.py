"""The largest arrival rate whose latencies meet their limits, by bisection over simulations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dynosim.sim.metrics import Metrics

RATIO = 1.03
"""The search ends when the rate that meets the limits and the one that does not are this close."""
MOST_DOUBLINGS = 12

Run = Callable[[float], Metrics]
"""Simulates requests that arrive at a rate per second."""


def largest_rate(run: Run, limits_ms: Mapping[str, float], guess: float) -> float:
    """Returns the largest rate at which no metric of ``limits_ms`` exceeds its limit.

    Latency is taken to rise with the rate. Starts at ``guess``, doubles or halves until the answer
    is between two rates, then bisects in logarithms: some ten simulations. NaN where even a rate
    4,096 times lower than the guess exceeds a limit; infinite where one as much higher does not.
    """

    def meets(rate: float) -> bool:
        metrics = run(rate)
        return all(metrics[name] <= limit for name, limit in limits_ms.items())

    low, high = guess, guess
    if meets(guess):
        for _ in range(MOST_DOUBLINGS):
            high *= 2.0
            if not meets(high):
                break
            low = high
        else:
            return float("inf")
    else:
        for _ in range(MOST_DOUBLINGS):
            low /= 2.0
            if meets(low):
                break
            high = low
        else:
            return float("nan")
    while high > RATIO * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low
