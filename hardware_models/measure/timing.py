"""When a shape's seconds are known well enough, from samples of one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, sqrt

from dynosim.hardware_models.measure.case import Timing

Sample = Callable[[], float]
"""Runs a shape and returns the seconds of one call of it."""

OUTLIER = 1.5
"""A sample beyond this multiple of the median is counted as one."""

DRIFT = 0.05
"""Later samples this much slower than earlier ones mean that the clock moved meanwhile."""

NORMAL_95 = 1.96


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a shape is sampled.

    After ``warm_up`` samples that do not count, until the median's confidence interval is within
    ± ``spread``, at least ``least`` and at most ``most`` times and for at most ``cap_s`` seconds
    (``least`` samples are taken whatever they take).
    """

    warm_up: int = 2
    least: int = 5
    most: int = 60
    spread: float = 0.02
    cap_s: float = 0.2


def settle(sample: Sample, rules: Rules, now: Callable[[], float]) -> Timing:
    """Returns the seconds of one call; ``now`` is the clock of the time cap.

    A shape whose samples drift is sampled once more: the first time may have been warm-up.
    """
    for _ in range(rules.warm_up):
        sample()
    timing = summarised(_until_settled(sample, rules, now))
    if timing.drift < -DRIFT:
        timing = summarised(_until_settled(sample, rules, now))
    return timing


def _until_settled(sample: Sample, rules: Rules, now: Callable[[], float]) -> list[float]:
    start = now()
    seconds: list[float] = []
    while True:
        seconds.append(sample())
        enough = len(seconds) >= rules.least
        if enough and (len(seconds) >= rules.most or now() - start >= rules.cap_s):
            return seconds
        if enough and spread(seconds) <= rules.spread:
            return seconds


def summarised(seconds: Sequence[float]) -> Timing:
    """Returns the statistics of samples, in the order in which they were taken."""
    middle = median(seconds)
    half = len(seconds) // 2
    drift = median(seconds[-half:]) / median(seconds[:half]) - 1.0 if half else 0.0
    beyond = sum(s > OUTLIER * middle for s in seconds)
    return Timing(
        median_s=middle,
        p10_s=quantile(seconds, 0.1),
        p90_s=quantile(seconds, 0.9),
        samples=len(seconds),
        spread=spread(seconds),
        drift=drift,
        outliers=beyond / len(seconds),
    )


def spread(seconds: Sequence[float]) -> float:
    """Returns the half-width of the median's 95 % confidence interval over the median.

    Distribution-free: order statistics at n/2 ± 0.98 √n (Conover, Practical Nonparametric
    Statistics, 3.2), widened to the extremes where there are few samples.
    """
    ordered, n = sorted(seconds), len(seconds)
    reach = NORMAL_95 * sqrt(n) / 2
    low = max(0, floor(n / 2 - reach))
    high = min(n - 1, ceil(n / 2 + reach) - 1)
    return (ordered[high] - ordered[low]) / 2 / median(seconds)


def median(seconds: Sequence[float]) -> float:
    """Returns the middle of the samples, the mean of the middle two where they are even."""
    return quantile(seconds, 0.5)


def quantile(seconds: Sequence[float], share: float) -> float:
    """Returns a quantile by lines between order statistics, as ``numpy.quantile`` does."""
    ordered = sorted(seconds)
    place = share * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def fastest(timings: Sequence[Timing]) -> Timing:
    """Returns the timing with the least median: an engine would pick that kernel too."""
    return min(timings, key=lambda t: t.median_s)


def named(timing: Timing, kernel: str) -> Timing:
    """Returns the timing with the name of the kernel that was run."""
    return replace(timing, kernel=kernel)
