"""Waking from vLLM's sleep level 1: weights were kept in host memory, the KV cache was dropped."""

from __future__ import annotations

from dynosim.hardware_models.startup.plan import Start
from dynosim.hardware_models.startup.stage import Stage, StartupPlan


def plan(start: Start) -> StartupPlan:
    """Returns a wake-up that copies weights over PCIe; each GPU has its own link."""
    figures = start.figures
    pcie_bytes_s = start.engine.gpu.pcie_bandwidth_bytes_s * figures.wake_1_pcie_share
    copy_s = start.weight_bytes / start.num_gpus / pcie_bytes_s
    stage = Stage(name="wake", seconds=figures.wake_1_s + copy_s)
    return StartupPlan(method="sleep_1", stages=(stage,), storage=start.storage, is_waking=True)
