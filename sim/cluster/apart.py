"""Replicas that cannot reach each other, run one after the other instead of on one clock.

That is so in an open loop behind a router that looks at no replica: all that an engine will ever
get is known beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Items

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.sim.cluster.replica import Replica
from dynosim.sim.cluster.requests import Requests
from dynosim.sim.cluster.routers.base import Router
from dynosim.sim.cluster.unseen import Unseen
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.results import Recorder


def run_apart(
    engines: Items[Replica],
    router: Router,
    requests: Requests,
    fitting: IntArray,
    recorder: Recorder,
) -> None:
    """Runs the requests ``fitting`` to their ends, each on the replica that the router chooses."""
    replicas = [Unseen(number) for number in range(len(engines))]
    choices = (router.choose(index, replicas) for index in fitting.data)
    chosen = np.fromiter(choices, dtype=np.int64, count=len(fitting))
    recorder.route(fitting, chosen)
    arrived_s = np.frombuffer(recorder.arrived_s)
    for replica, engine in enumerate(engines):
        own = fitting[chosen == replica]
        serve(engine, _arrivals(requests, own, arrived_s[own]), recorder.record)


def _arrivals(
    requests: Requests, own: IntArray, arrival_s: FloatArray
) -> Iterator[tuple[float, Sequence]]:
    return zip(arrival_s.data, map(requests.sequence, own.data), strict=True)


def serve(
    engine: Replica,
    arrivals: Iterable[tuple[float, Sequence]],
    on_finish: Callable[[Sequence, float], None],
) -> None:
    """Runs an engine through requests in order of their arrival, and until it is idle.

    At one instant arrivals come before the end of a run, so that all of them can enter.
    """
    end_s = math.inf
    for arrival_s, seq in arrivals:
        if end_s < arrival_s:
            end_s = engine.run_until(end_s, arrival_s, on_finish)
        sooner_s = engine.enqueue(seq, arrival_s)
        if sooner_s is not None:
            end_s = sooner_s
        elif end_s == math.inf:
            end_s = arrival_s
    if end_s < math.inf:
        engine.run_until(end_s, math.inf, on_finish)
