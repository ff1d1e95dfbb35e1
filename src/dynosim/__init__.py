"""Discrete-event performance simulator and Pareto optimiser for LLM serving."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynosim.sim.deployment import Deployment
    from dynosim.sim.simulate import simulate
    from dynosim.sim.workload.build import build_workload
    from dynosim.sim.workload.spec import WorkloadSpec

__version__ = "0.1.0"
__all__ = ["Deployment", "WorkloadSpec", "__version__", "build_workload", "simulate"]

_HOMES = {
    "Deployment": "dynosim.sim.deployment",
    "WorkloadSpec": "dynosim.sim.workload.spec",
    "build_workload": "dynosim.sim.workload.build",
    "simulate": "dynosim.sim.simulate",
}


def __getattr__(name: str) -> object:
    """Loads a public name when it is first used: ``dynosim --help`` needs none of them.

    The search is ``from dynosim.search import search``.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'dynosim' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
