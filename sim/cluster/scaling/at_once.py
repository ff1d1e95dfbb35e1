"""How long starts take that begin together."""

from __future__ import annotations

from collections.abc import Generator

import simpy

from dynosim.sim.cluster.scaling.starter import Starter, StartSpec
from dynosim.sim.random_streams import stream


def start_at_once(spec: StartSpec, count: int, seed: int = 0) -> list[float]:
    """Returns the seconds after which each of ``count`` replicas serves."""
    env = simpy.Environment()
    starter = Starter(env, spec, lambda number: stream(seed, f"start {number}"))
    ends_s = [0.0] * count

    def start(number: int) -> Generator[simpy.Event, None, None]:
        yield from starter.run(number, False, lambda: True)
        ends_s[number] = env.now

    for number in range(count):
        env.process(start(number))
    env.run()
    return ends_s
