"""When API servers were behind: requests waiting to be taken in, answers waiting to be written."""

from __future__ import annotations

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.bottleneck.intervals import Intervals, union
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.results import ReplicaLog, RunResult

_LATE_S = 1e-9
"""Rounding of sums of times; less than that late is in time."""


def intake_work_s(result: RunResult, frontend: Frontend) -> FloatArray:
    """Returns the seconds that all API servers together take for each completed request."""
    tokens = result.workload.input_tokens[result.completed]
    servers = frontend.servers * len(result.replicas)
    return np.asarray((frontend.request_s + frontend.input_token_s * tokens) / servers)


def intake_queue(result: RunResult, frontend: Frontend) -> Intervals:
    """Returns when at least one request had come and nobody had begun to take it in."""
    done = result.completed
    sent_s = result.reached_s[done]
    work_s = intake_work_s(result, frontend)
    if not work_s.any():
        return union(sent_s, sent_s)
    order = np.argsort(sent_s, kind="stable")
    sent_s, work_s = sent_s[order], work_s[order]
    # Lindley's recursion, unrolled, as the front-end itself has it.
    ends_s = np.cumsum(work_s)
    begins_s = ends_s + np.maximum.accumulate(sent_s - (ends_s - work_s)) - work_s
    return union(sent_s, np.where(begins_s - sent_s > _LATE_S, begins_s, sent_s))


def late_share(log: ReplicaLog) -> FloatArray:
    """Returns for every run of an engine the share of it by which its answers were late.

    Late is what its last step waits for others to be written before it, at most all of the run.
    """
    steps, delivered = log.steps, log.delivered
    if delivered is steps or not len(steps.counts):
        return np.zeros(len(steps.counts))
    last = np.cumsum(steps.counts).astype(np.int64) - 1
    # A step's writing begins where the one before it was written, at the earliest at its own end.
    before_s = np.concatenate([[-np.inf], delivered.ends_s(last[1:] - 1) if len(last) > 1 else []])
    before_s[0] = delivered.ends_s(last[:1] - 1)[0] if last[0] > 0 else -np.inf
    late_s = np.maximum(before_s - (steps.start_s + steps.durations_s), 0.0)
    duration_s = steps.durations_s
    return np.asarray(np.where(late_s > _LATE_S, np.minimum(late_s / duration_s, 1.0), 0.0))
