"""Restoring a snapshot of a started engine, on the same GPU model under the same driver."""

from __future__ import annotations

from dataclasses import replace

from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.startup.methods import cold
from dynosim.hardware_models.startup.plan import Start
from dynosim.hardware_models.startup.stage import StartupPlan


def plan(start: Start) -> StartupPlan:
    """Returns a restore, or a cold start where the snapshot does not fit the nodes."""
    reason = _invalid(start)
    if reason:
        note = f"the snapshot is not valid here ({reason}): replicas start cold"
        return replace(cold.plan(start), notes=(note,))
    stage = start.read("restore", artifact_bytes(start), "snapshot", start.figures.restore_s)
    return StartupPlan(
        method="snapshot",
        stages=(stage,),
        storage=start.storage,
        failure_rate=start.options.snapshot_failure_rate,
        fallback=cold.plan(start),
    )


def artifact_bytes(start: Start) -> float:
    """Returns the bytes of the snapshot: GPU memory, the KV cache unmapped, and host memory."""
    memory, figures = start.memory, start.figures
    on_gpu = memory.weights_bytes + memory.activation_bytes + memory.non_torch_bytes
    on_gpu += memory.cuda_graph_bytes
    if start.options.snapshot_keeps_kv:
        on_gpu += memory.kv_cache_bytes
    on_host = figures.snapshot_host_bytes
    on_host += figures.snapshot_host_weight_share * memory.weights_bytes
    return (on_gpu + on_host) * start.num_gpus


def _invalid(start: Start) -> str:
    options = start.options
    if options.snapshot_gpu is not None:
        taken_on, here = get_gpu(options.snapshot_gpu), start.engine.gpu
        if taken_on.key != here.key:
            return f"taken on {taken_on.name}, restored on {here.name}"
    if options.snapshot_driver is not None and options.snapshot_driver != options.gpu_driver:
        here_driver = options.gpu_driver or "an unknown one"
        return f"taken under driver {options.snapshot_driver}, restored under {here_driver}"
    return ""
