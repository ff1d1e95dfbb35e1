"""For how much of every run of an engine requests were kept out, and by what."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.sim.engine import holds
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.step_log import Steps
from dynosim.sim.results import RunResult


class Held(NamedTuple):
    """By run: the resource (:mod:`~dynosim.sim.engine.holds`) that held requests back, and the
    share of the run, its end, for which it did."""

    by: IntArray
    share: FloatArray


def logged(steps: Steps) -> Held:
    """Returns what the log itself says: who was kept out when a batch was formed."""
    return Held(steps.held_by.copy(), (steps.blocked > 0).astype(np.float64))


def held(result: RunResult, replica: int, limits: EngineLimits) -> Held:
    """Returns what kept requests out of each run of a replica.

    That is what its log says, but for leaps: requests that arrive in one through which they could
    not have entered are in no log. Decodes leap on past them where all slots are taken, chunks of
    a prompt where they take all of a step's tokens. Steps count from their boundary on,
    asynchronously from the next one: batches are formed a step ahead.
    """
    steps = result.replicas[replica].steps
    by, share = logged(steps)
    own = result.completed & (result.replica == replica)
    arrived_s, entered_s = np.sort(result.routed_s[own]), np.sort(result.scheduled_s[own])
    free = share == 0.0
    formed_s = steps.start_s
    if limits.async_scheduling:
        formed_s = np.concatenate([formed_s[:1], formed_s[:-1]])
    waiting = np.searchsorted(arrived_s, formed_s, side="right")
    waiting -= np.searchsorted(entered_s, steps.start_s, side="right")
    chunks = free & (waiting > 0) & (steps.prefill_tokens > 0)
    is_static = limits.scheduler == "static"
    by[chunks], share[chunks] = holds.BATCH if is_static else holds.TOKENS, 1.0
    is_full = steps.running >= limits.max_num_seqs
    leaps = np.flatnonzero(free & is_full & (steps.counts > 1) & (steps.prefill_tokens == 0))
    passed = _share_behind(steps, leaps, arrived_s, int(limits.async_scheduling))
    by[leaps[passed > 0.0]] = holds.BATCH if is_static else holds.SLOTS
    share[leaps] = passed
    return Held(by, share)


def _share_behind(steps: Steps, runs: IntArray, arrived_s: FloatArray, ahead: int) -> FloatArray:
    """Returns the share of each run behind the first boundary at or after an arrival in it.

    Where batches are formed ``ahead``, behind so many further steps.
    """
    start_s, duration_s = steps.start_s[runs], steps.durations_s[runs]
    first = np.searchsorted(arrived_s, start_s, side="right")
    arrival_s = np.append(arrived_s, np.inf)[first]
    inside = np.flatnonzero(arrival_s < start_s + duration_s)
    shares = np.zeros(len(runs))
    for i in inside.tolist():
        run = runs[i]
        ordinals = np.arange(1.0, steps.counts[run] + 1.0)
        growth_s = 0.5 * ordinals * (ordinals - 1.0) * steps.growth_s[run]
        ends_s = ordinals * steps.dt_s[run] + growth_s
        boundary = np.searchsorted(ends_s, arrival_s[i] - start_s[i]) + ahead
        shares[i] = 1.0 - ends_s[min(boundary, len(ends_s) - 1)] / duration_s[i]
    return shares
