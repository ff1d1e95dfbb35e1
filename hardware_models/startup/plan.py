"""From a deployment's options to the stages of its replicas' starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.memory.plan import MemoryPlan
from dynosim.hardware_models.registry import find_module
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.startup.figures import StartupFigures, borrows_from, startup_figures
from dynosim.hardware_models.startup.options import StartupOptions
from dynosim.hardware_models.startup.stage import Stage, StartupPlan
from dynosim.hardware_models.startup.storage import Storage, get_storage

METHODS = "dynosim.hardware_models.startup.methods"


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a method makes its stages from: the engine, where its bytes lie, what it costs."""

    engine: ResolvedEngine
    memory: MemoryPlan
    options: StartupOptions
    figures: StartupFigures
    storage: Storage

    @property
    def num_gpus(self) -> int:
        """GPUs of one replica."""
        return self.engine.args.gpus_per_replica

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights that one replica's GPUs hold together."""
        return float(self.memory.weights_bytes * self.num_gpus)

    def read(self, name: str, num_bytes: float, reader: str, seconds: float = 0.0) -> Stage:
        """Returns a stage in which all GPUs of the replica read their share of some bytes."""
        pace = self.storage.reader_bytes_s(reader) * self.num_gpus
        return Stage(
            name=name, seconds=seconds, num_bytes=num_bytes, most_bytes_s=pace, over="storage"
        )


def plan_startup(
    engine: ResolvedEngine, memory: MemoryPlan, options: StartupOptions
) -> StartupPlan:
    """Returns how one replica starts.

    Raises UserError for an unknown method or storage, for a method's options without the method,
    and for an image without a registry's bandwidth.
    """
    storage = get_storage(options.startup_storage)
    if options.startup_storage_gb_s is not None:
        storage = storage.with_bandwidth(options.startup_storage_gb_s * 1e9)
    _check(options)
    method = find_module(METHODS, "startup method", options.startup)
    if options.startup_s is not None:
        own = (Stage(name="start", seconds=options.startup_s),)
        return StartupPlan(method=options.startup, stages=own, storage=storage)
    start = Start(
        engine=engine,
        memory=memory,
        options=options,
        figures=startup_figures(engine.backend.name),
        storage=storage,
    )
    plan: StartupPlan = method.plan(start)
    if like := borrows_from(engine.backend.name):
        note = f"no start of {engine.backend.name} was measured: {like}'s figures stand in"
        plan = replace(plan, notes=(*plan.notes, note))
    if plan.is_waking:
        return plan
    return _on_a_new_node(plan, options)


def _on_a_new_node(plan: StartupPlan, options: StartupOptions) -> StartupPlan:
    before = []
    if options.startup_provision_s:
        before.append(
            Stage(name="node provisioning", seconds=options.startup_provision_s, is_of_node=True)
        )
    if options.startup_image_gib:
        image_bytes = options.startup_image_gib * 2**30
        before.append(
            Stage(name="image pull", num_bytes=image_bytes, over="registry", is_of_node=True)
        )
    registry_gb_s = options.startup_registry_gb_s
    registry_bytes_s = math.inf if registry_gb_s is None else registry_gb_s * 1e9
    fallback = plan.fallback
    if fallback is not None:
        fallback = replace(fallback, registry_bytes_s=registry_bytes_s)
    return replace(
        plan,
        stages=(*before, *plan.stages),
        registry_bytes_s=registry_bytes_s,
        fallback=fallback,
    )


def _check(options: StartupOptions) -> None:
    if options.startup_image_gib and options.startup_registry_gb_s is None:
        raise UserError(
            "an image is pulled from nowhere",
            where="startup_registry_gb_s",
            hint="give the registry's GB/s, or leave out startup_image_gib",
        )
    if options.startup == "snapshot":
        return
    for name in ("snapshot_gpu", "snapshot_driver", "snapshot_keeps_kv", "snapshot_failure_rate"):
        if getattr(options, name) != getattr(StartupOptions, name):
            raise UserError(
                f"`{name}` needs `startup: snapshot`, found `{options.startup}`", where=name
            )
