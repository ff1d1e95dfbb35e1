"""Waking from vLLM's sleep level 2: weights are read again; process and graphs were kept."""

from __future__ import annotations

from dataclasses import replace

from dynosim.hardware_models.startup.plan import Start
from dynosim.hardware_models.startup.stage import StartupPlan


def plan(start: Start) -> StartupPlan:
    """Returns a wake-up that reads weights from storage, at the pace seen from an SSD or less."""
    figures = start.figures
    stage = start.read("weights", start.weight_bytes, "stream", figures.wake_2_s)
    pace = min(stage.most_bytes_s, figures.wake_2_bytes_s * start.num_gpus)
    stages = (replace(stage, most_bytes_s=pace),)
    return StartupPlan(method="sleep_2", stages=stages, storage=start.storage, is_waking=True)
