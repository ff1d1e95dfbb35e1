"""Little's law as an identity: it holds on every finished run exactly, not only in the long run."""

from __future__ import annotations

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.sim.results import RunResult


def assert_littles_law(result: RunResult) -> None:
    """Asserts that requests in flight, integrated over time, are the sum of their times.

    L = lambda W over the span of a run, at whose ends nobody is in flight. Counted from events on
    one side and summed over requests on the other: a request counted twice or lost breaks it.
    """
    done = result.completed
    _assert_same_area(*_all_who_were_sent(result))
    for came_s, left_s in (
        (result.sent_s, result.finish_s),
        (result.arrived_s, result.routed_s),
        (result.routed_s, result.scheduled_s),
    ):
        _assert_same_area(came_s[done], left_s[done])


def _all_who_were_sent(result: RunResult) -> tuple[FloatArray, FloatArray]:
    """Returns when requests were sent, and answered, turned away or given up."""
    sent = ~np.isnan(result.sent_s)
    ended_s = np.where(result.completed, result.finish_s, result.refused_s)
    return result.sent_s[sent], ended_s[sent]


def _assert_same_area(came_s: FloatArray, left_s: FloatArray) -> None:
    came, left = np.sort(came_s), np.sort(left_s)
    times = np.sort(np.concatenate([came, left]))
    within = np.searchsorted(came, times, "right") - np.searchsorted(left, times, "right")
    assert (left_s - came_s).min(initial=0.0) >= -1e-9
    area = float(within[:-1] @ np.diff(times))
    np.testing.assert_allclose(area, (left_s - came_s).sum(), rtol=1e-9, atol=1e-9)
