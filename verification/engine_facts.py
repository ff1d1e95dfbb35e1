"""What the engine says of itself against what was predicted: KV cache and start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.startup.plan import plan_startup
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import resolve_for
from dynosim.sim.workload.columns import Workload

_STAGES = {
    "startup_weights_s": "weights",
    "startup_compile_s": "compile",
    "startup_graphs_s": "CUDA graphs",
}
"""Logged fact -> the stage of a predicted start that it is."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One figure of an engine, logged and predicted."""

    name: str
    unit: str
    predicted: float
    logged: float

    @property
    def error(self) -> float:
        """Predicted over logged, less one; NaN where nothing was logged to divide by."""
        return self.predicted / self.logged - 1.0 if self.logged else float("nan")


def compare_facts(
    deployment: Deployment, load: Workload, facts: Mapping[str, float | str]
) -> tuple[Fact, ...]:
    """Returns the logged figures that have a prediction."""
    numbers = {k: float(v) for k, v in facts.items() if not isinstance(v, str)}
    return tuple(_facts(deployment, load, numbers))


def _facts(deployment: Deployment, load: Workload, logged: Mapping[str, float]) -> Iterator[Fact]:
    engine, _ = resolve_for(deployment.decode_pool, load)
    memory = plan_memory(engine)
    if "kv_cache_tokens" in logged and memory.feasible:
        yield Fact(
            name="KV cache",
            unit="tokens",
            predicted=float(memory.kv_cache_tokens),
            logged=logged["kv_cache_tokens"],
        )
    if not any(name.startswith("startup_") for name in logged):
        return
    plan = plan_startup(engine, memory, deployment)
    stages = {stage.name.split(" (")[0]: plan.stage_s(stage) for stage in plan.stages}
    for fact, stage in _STAGES.items():
        if fact in logged and stage in stages:
            yield Fact(
                name=f"start: {stage}", unit="s", predicted=stages[stage], logged=logged[fact]
            )
    if "startup_total_s" in logged:
        total_s = logged["startup_total_s"]
        yield Fact(name="start: all", unit="s", predicted=plan.alone_s, logged=total_s)
