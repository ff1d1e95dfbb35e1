"""Starts on the clock: each goes through its stages, and all share what they read from."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable

import numpy as np
import simpy

from dynosim.hardware_models.startup.stage import Stage, StartupPlan
from dynosim.sim.cluster.fabric import Fabric, Link
from dynosim.sim.cluster.scaling.start_spec import StartSpec


class StartLinks:
    """What the starts of a run read from, by what it is and whose."""

    def __init__(self, env: simpy.Environment) -> None:
        self.fabric = Fabric(env)
        self._links: dict[tuple[str, Hashable], Link] = {}

    def link(self, kind: str, owner: Hashable, bandwidth_bytes_s: float) -> Link:
        """Returns the link of an owner, made when it is first asked for."""
        key = kind, owner
        if key not in self._links:
            self._links[key] = Link(kind, bandwidth_bytes_s)
        return self._links[key]


class Starter:
    """Runs starts, of which those on one node or in the cluster share a storage's bandwidth.

    Draws of one replica come from a stream of its own, whatever the others do. With the starts of
    other pools it shares ``links``, but for those of nodes.
    """

    def __init__(
        self,
        env: simpy.Environment,
        spec: StartSpec,
        rng_of: Callable[[int], np.random.Generator],
        links: StartLinks | None = None,
    ) -> None:
        self._env = env
        self._spec = spec
        self._rng_of = rng_of
        self._rngs: dict[int, np.random.Generator] = {}
        self._links = links or StartLinks(env)
        self.fallbacks = 0

    def run(
        self, replica: int, is_restart: bool, is_wanted: Callable[[], bool]
    ) -> Generator[simpy.Event, None, bool]:
        """Passes through the stages; returns whether the start is still wanted at their end.

        A restart finds node and image where they were. A start that is wanted no longer ends with
        its stage in progress.
        """
        plan: StartupPlan | None = self._spec.plan
        rng = self._rngs.setdefault(replica, self._rng_of(replica))
        while plan is not None:
            for stage in plan.stages:
                if is_restart and stage.is_of_node:
                    continue
                yield from self._pass(stage, plan, replica, rng)
                if not is_wanted():
                    return False
            failed = plan.failure_rate > 0.0 and rng.random() < plan.failure_rate
            self.fallbacks += failed
            plan = plan.fallback if failed else None
        return True

    def _pass(
        self, stage: Stage, plan: StartupPlan, replica: int, rng: np.random.Generator
    ) -> Generator[simpy.Event, None, None]:
        seconds = stage.seconds
        if seconds and self._spec.seconds_cv:
            variance = math.log1p(self._spec.seconds_cv**2)
            seconds *= math.exp(rng.normal(-variance / 2, math.sqrt(variance)))
        if seconds:
            yield self._env.timeout(seconds)
        if stage.num_bytes:
            links = self._links_of(stage, plan, replica)
            yield self._links.fabric.send(links, stage.num_bytes, most_bytes_s=stage.most_bytes_s)

    def _links_of(self, stage: Stage, plan: StartupPlan, replica: int) -> list[Link]:
        bandwidth_bytes_s = plan.bandwidth_bytes_s(stage)
        if stage.over is None or math.isinf(bandwidth_bytes_s):
            return []
        is_own = stage.over == "storage" and plan.storage.scope == "node"
        owner = (self, replica // self._spec.replicas_per_node) if is_own else None
        return [self._links.link(stage.over, owner, bandwidth_bytes_s)]
