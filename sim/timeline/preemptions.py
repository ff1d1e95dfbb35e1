"""When decoding requests lost their KV blocks."""

from __future__ import annotations

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.sim.results import ReplicaLog


def preemptions(log: ReplicaLog) -> tuple[IntArray, FloatArray]:
    """Returns the requests that were preempted after a token of theirs, and when.

    That is at the end of every stint of a request but its last; prompts that lose their blocks
    before their first token leave no trace in the log.
    """
    stints = log.stints
    order = np.argsort(stints[:, 0], kind="stable")
    lost = stints[order[np.flatnonzero(np.diff(stints[order, 0]) == 0)]]
    time_s = log.steps.ends_s(lost[:, 2] - 1) if len(lost) else np.empty(0)
    return lost[:, 0], time_s
