"""What to decide: how many users, how many GPUs, what a change is worth, and how to launch it.

>>> from dynosim.planning import Demand, plan_fleets
>>> plan = plan_fleets(space, Demand(requests_s=(50.0,)))  # doctest: +SKIP
>>> plan.to_frame()  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynosim.planning.ablation import Ablation, ablate
    from dynosim.planning.capacity import Capacity, find_capacity
    from dynosim.planning.demand import Demand, read_demand
    from dynosim.planning.fleet import Reserve
    from dynosim.planning.fleet_plan import FleetPlan, plan_fleets
    from dynosim.planning.goal import goal_of
    from dynosim.planning.prices import Prices, read_prices

__all__ = [
    "Ablation",
    "Capacity",
    "Demand",
    "FleetPlan",
    "Prices",
    "Reserve",
    "ablate",
    "find_capacity",
    "goal_of",
    "plan_fleets",
    "read_demand",
    "read_prices",
]

_HOMES = {
    "Ablation": "ablation",
    "Capacity": "capacity",
    "Demand": "demand",
    "FleetPlan": "fleet_plan",
    "Prices": "prices",
    "Reserve": "fleet",
    "ablate": "ablation",
    "find_capacity": "capacity",
    "goal_of": "goal",
    "plan_fleets": "fleet_plan",
    "read_demand": "demand",
    "read_prices": "prices",
}


def __getattr__(name: str) -> object:
    # Imported on first use: a command that needs one of them does not wait for the others.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
