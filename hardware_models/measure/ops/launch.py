"""What kernels cost that have nothing to do: launched one by one, and inside a CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynosim.hardware_models.measure.bench import Kernel
from dynosim.hardware_models.measure.case import Unsupported
from dynosim.hardware_models.measure.lab import Lab
from dynosim.hardware_models.measure.stopwatch import Stopwatch, captured


def build(lab: Lab, key: Mapping[str, Any]) -> list[Kernel]:
    """Returns the run of ``num_kernels`` one after another; its seconds are those of all."""
    mode, count = key["launch"], key["num_kernels"]
    if mode == "graph" and not lab.on_gpu:
        raise Unsupported("a CPU has no CUDA graphs")
    one, watch = lab.torch.ones(1, device=lab.device), Stopwatch(lab, graphs=False)
    run = [lambda: one.add_(1.0)] * count
    if mode == "graph":
        run = [captured(lab.torch, run)]
    return [Kernel(mode, lambda: watch.seconds(run))]
