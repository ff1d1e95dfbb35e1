"""A cold start whose weights come over many readers at once, as by Run:ai's model streamer."""

from __future__ import annotations

from dynosim.hardware_models.startup.methods.cold import engine_stages
from dynosim.hardware_models.startup.plan import Start
from dynosim.hardware_models.startup.stage import StartupPlan


def plan(start: Start) -> StartupPlan:
    """Returns a cold start that reads as fast as storage and streamer go."""
    stages = engine_stages(start, reader="stream")
    return StartupPlan(method="stream", stages=stages, storage=start.storage)
