"""The bottleneck of a simulation, as values to print and to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dynosim.hardware_models.timing.step_parts import StepParts
from dynosim.sim.bottleneck.attribution import WAITS, Attribution, attribute
from dynosim.sim.bottleneck.resources import ResourceUse, resource_uses
from dynosim.sim.simulate import Simulation, cluster_spec

BINS = 20
"""Into how many equal parts the JSON cuts a run."""


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """Which resource a run was bound by, and how each was used.

    ``bound_by`` are shares of the engines' time and sum to 1; ``steps`` what steps took their time
    for, whoever waited, also sums to 1. ``waiting_s`` is how long requests waited at engines in
    all, by what kept the next one out.
    """

    bound_by: Mapping[str, float]
    steps: Mapping[str, float]
    waiting_s: Mapping[str, float]
    resources: tuple[ResourceUse, ...]
    attribution: Attribution

    def document(self) -> dict[str, object]:
        """Returns what the JSON of ``dynosim simulate`` has under ``bottleneck``."""
        return {
            "bound_by": _rounded(self.bound_by),
            "steps": _rounded(self.steps),
            "waiting_request_s": _rounded(self.waiting_s),
            "resources": [_rounded(asdict(use)) for use in self.resources],
            "over_time": [
                {"start_s": start_s, "end_s": end_s, "shares": _rounded(shares)}
                for start_s, end_s, shares in self.attribution.over_time(BINS)
            ],
        }


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns figures to nine digits: the same text whatever a platform's last bit says."""
    return {k: float(f"{v:.9g}") if isinstance(v, float) else v for k, v in figures.items()}


def bottleneck(simulation: Simulation) -> Bottleneck | None:
    """Returns what the run was bound by, None where no request was served."""
    spec = cluster_spec(
        simulation.deployment, simulation.engine, simulation.memory, simulation.timer
    )
    parts = StepParts.compile(simulation.engine)
    found = attribute(simulation.result, parts, spec.limits, spec.frontend)
    if found is None:
        return None
    waiting_s = dict(zip(WAITS, found.waiting_request_s.tolist(), strict=True))
    return Bottleneck(
        bound_by=found.shares,
        steps=found.step_shares,
        waiting_s={name: seconds for name, seconds in waiting_s.items() if seconds > 0.0},
        resources=tuple(resource_uses(simulation.result, found, spec.limits, spec.frontend)),
        attribution=found,
    )
