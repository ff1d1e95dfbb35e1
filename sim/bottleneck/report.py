"""The bottleneck of a simulation, as values to print and to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dynosim.hardware_models.timing.step_parts import StepParts
from dynosim.sim.bottleneck.attribution import (
    WAITS,
    Attribution,
    attribute,
    attribute_pool,
    span_s,
)
from dynosim.sim.bottleneck.resources import ResourceUse, resource_uses
from dynosim.sim.simulate import Simulation, cluster_spec

BINS = 20
"""Into how many equal parts the JSON cuts a run."""


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """Which resource a run was bound by, and how each was used.

    ``bound_by`` are shares of the engines' time and sum to 1; ``steps`` what steps took their time
    for, whoever waited, also sums to 1. ``waiting_s`` is how long requests waited at engines in
    all, by what kept the next one out. With two pools these are of the one that answers, and
    ``prefill`` is of the other.
    """

    bound_by: Mapping[str, float]
    steps: Mapping[str, float]
    waiting_s: Mapping[str, float]
    resources: tuple[ResourceUse, ...]
    attribution: Attribution
    prefill: Attribution | None = None

    def document(self) -> dict[str, object]:
        """Returns what the JSON of ``dynosim simulate`` has under ``bottleneck``."""
        document: dict[str, object] = {
            "bound_by": _rounded(self.bound_by),
            "steps": _rounded(self.steps),
            "waiting_request_s": _rounded(self.waiting_s),
            "resources": [_rounded(asdict(use)) for use in self.resources],
            "over_time": [
                {"start_s": start_s, "end_s": end_s, "shares": _rounded(shares)}
                for start_s, end_s, shares in self.attribution.over_time(BINS)
            ],
        }
        if self.prefill is not None:
            document["prefill_bound_by"] = _rounded(self.prefill.shares)
            document["prefill_steps"] = _rounded(self.prefill.step_shares)
        return document


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns figures to nine digits: the same text whatever a platform's last bit says."""
    return {k: float(f"{v:.9g}") if isinstance(v, float) else v for k, v in figures.items()}


def bottleneck(simulation: Simulation) -> Bottleneck | None:
    """Returns what the run was bound by, None where no request was served."""
    spec = cluster_spec(simulation.deployment, simulation.decode, simulation.prefill)
    result = simulation.result
    parts = StepParts.compile(simulation.engine)
    found = attribute(result, parts, spec.limits, spec.frontend)
    if found is None:
        return None
    prefill = None
    if simulation.prefill is not None:
        assert result.hand_overs is not None, "a prefill pool handed nothing over"
        own = StepParts.compile(simulation.prefill.engine)
        prefill = attribute_pool(result.hand_overs, own, span_s(result))
    waiting_s = dict(zip(WAITS, found.waiting_request_s.tolist(), strict=True))
    return Bottleneck(
        bound_by=found.shares,
        steps=found.step_shares,
        waiting_s={name: seconds for name, seconds in waiting_s.items() if seconds > 0.0},
        resources=tuple(resource_uses(result, found, spec.limits, spec.frontend)),
        attribution=found,
        prefill=prefill,
    )
