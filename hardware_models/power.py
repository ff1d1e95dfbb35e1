"""What a deployment's GPU boards draw: a share of TDP while they compute, another while they wait.

Power is linear in the busy share of the time (Fan, Weber and Barroso, "Power provisioning for a
warehouse-sized computer", ISCA 2007); both shares stand in ``data/power.yaml`` with their sources.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.gpus import Gpu

Share = TypeVar("Share", float, FloatArray)


def mean_watts(gpu: Gpu, num_gpus: Share, busy_share: Share) -> Share:
    """Returns the mean draw of ``num_gpus`` boards whose engines compute ``busy_share`` of it."""
    busy, idle = _shares()
    return num_gpus * gpu.tdp_w * (idle + (busy - idle) * busy_share)


@lru_cache(maxsize=1)
def _shares() -> tuple[float, float]:
    card = read_yaml(DATA / "power.yaml")
    return float(card["busy_share"]["value"]), float(card["idle_share"]["value"])
