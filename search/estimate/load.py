"""A workload as an estimate sees it: rates and moments."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.summary import ideal_prefix_hits

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Middles of five equal classes of prompts: the mean over them stands for the mean prompt."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Moments of a workload; token counts are of new tokens, what an ideal cache holds left out.

    ``rate_req_s`` is infinite where all requests are there at once. ``in_flight`` is the cap of a
    closed loop, or all requests where they come at once; infinite in an open loop. ``burstiness``
    is the squared coefficient of variation of the gaps between arrivals, counted over spans of a
    few requests so that a slow swing of the rate counts too.
    """

    num_requests: int
    rate_req_s: float
    in_flight: float
    burstiness: float
    prompt_classes: tuple[int, ...]
    long_prompt: int
    output_tokens: float
    output_cv2: float
    context_tokens: float
    held_tokens: float
    hit_tokens: float
    span_s: float


def summarize_load(workload: Workload) -> Load:
    """Returns the moments of a workload."""
    prompts = workload.input_tokens.astype(np.float64)
    outputs = workload.output_tokens.astype(np.float64)
    span_s = float(workload.arrival_s[-1] - workload.arrival_s[0])
    n = len(workload)
    rate = (n - 1) / span_s if span_s > 0 else math.inf
    cap = workload.max_concurrency
    if cap is None and workload.turns is not None:
        # Sessions have one request in flight each.
        cap = int(workload.turns.is_first.sum())
    in_flight = float(min(cap, n)) if cap else (float(n) if rate == math.inf else math.inf)
    hits = ideal_prefix_hits(workload) * workload.prefix_block_tokens / n
    new = 1.0 - min(hits / prompts.mean(), 0.99)
    classes = np.quantile(prompts, QUANTILES) * new
    return Load(
        num_requests=n,
        rate_req_s=rate,
        in_flight=in_flight,
        burstiness=_burstiness(workload.arrival_s, span_s),
        prompt_classes=tuple(max(1, round(float(c))) for c in classes),
        long_prompt=max(1, round(float(np.quantile(prompts, 0.99)) * new)),
        output_tokens=float(outputs.mean()),
        output_cv2=float(outputs.var() / outputs.mean() ** 2),
        context_tokens=float((outputs * (prompts + outputs / 2)).sum() / outputs.sum()),
        held_tokens=float((prompts + outputs / 2).mean()),
        hit_tokens=float(hits),
        span_s=span_s,
    )


def _burstiness(arrival_s: np.ndarray[tuple[int], np.dtype[np.float64]], span_s: float) -> float:
    """Returns the index of dispersion of counts over windows of about ten requests."""
    windows = len(arrival_s) // 10
    if span_s <= 0 or windows < 10:
        return 1.0
    counts, _ = np.histogram(arrival_s, bins=windows)
    return float(counts.var() / counts.mean())
