"""Two pools that scale and fail, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dynosim.hardware_models.startup.stage import Stage, StartupPlan
from dynosim.hardware_models.startup.storage import get_storage
from dynosim.sim.cluster.cluster import ClusterSpec
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.spec import scaling_spec
from dynosim.sim.cluster.scaling.start_spec import StartSpec


def start(seconds: float = 10.0) -> StartSpec:
    stages = (Stage(name="start", seconds=seconds),)
    return StartSpec(plan=StartupPlan(method="cold", stages=stages, storage=get_storage("volume")))


def scaled(
    spec: ClusterSpec,
    decode: dict[str, Any] | None = None,
    prefill: dict[str, Any] | None = None,
    failures: str | None = None,
    start_s: float = 10.0,
) -> ClusterSpec:
    """Returns the pools with autoscalers of their own, by their options, and failures of both."""
    assert spec.prefill is not None
    pool = spec.prefill.pool
    both = {"failures": failures}
    own = scaling_spec(ScalingOptions(**both, **(decode or {})), start(start_s), spec.replicas)
    theirs = scaling_spec(
        ScalingOptions(**both, **(prefill or {})), start(start_s), pool.replicas, pool="prefill"
    )
    split = replace(spec.prefill, pool=replace(pool, scaling=theirs))
    return replace(spec, scaling=own, prefill=split)
