"""Plans: each option serves the demand, the frontier holds what no other beats, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.planning.demand import Demand
from dynosim.planning.fleet import Reserve
from dynosim.planning.fleet_plan import plan_fleets
from dynosim.planning.prices import HOURS_A_MONTH
from dynosim.search.space import SearchSpace, parse_space

SPACE: dict[str, Any] = {
    "model": "Qwen/Qwen3-8B",
    "gpu": ["h100_sxm", "l40s", "t4"],
    "backend_version": "0.19.0",
    "max_model_len": 4096,
    "workload": {"isl": 1000, "osl": 100, "num_prompts": 200},
    "slos": {"ttft": {"p95": 1000}, "tpot": {"p95": 40}},
}
DEMAND = Demand(requests_s=(20.0,))


def space(**changes: Any) -> SearchSpace:
    return parse_space(SPACE | changes)


def test_options_serve_the_demand_or_say_why_not() -> None:
    found = plan_fleets(space(), DEMAND)
    assert len(found.options) == 3
    for option in found.feasible:
        assert option.fleet is not None
        assert option.at_peak is not None
        assert option.at_peak.load.size == pytest.approx(20.0 / option.fleet.units)
        assert 0 < option.use_of_limit <= 1
        assert option.units_less <= option.fleet.units <= option.units_more
        assert option.deployment.replicas == option.fleet.units
    (t4,) = (o for o in found.options if o.deployment.gpu == "t4")
    assert t4.fleet is None
    assert t4.reason


def test_the_frontier_trades_rent_for_latency() -> None:
    front = plan_fleets(space(), DEMAND).frontier
    rents = [o.fleet.rent_usd_month for o in front if o.fleet]
    assert rents == sorted(rents, key=lambda rent: rent or 0)
    uses = [o.use_of_limit for o in front]
    assert uses == sorted(uses, reverse=True)


def test_less_reserve_never_needs_more() -> None:
    few = plan_fleets(space(gpu="h100_sxm"), DEMAND, reserve=Reserve(headroom=0.0, spare=0))
    many = plan_fleets(space(gpu="h100_sxm"), DEMAND, reserve=Reserve(headroom=0.5, spare=2))
    assert few.feasible[0].deployment.num_gpus < many.feasible[0].deployment.num_gpus


def test_two_pools_are_multiplied_together() -> None:
    pools = space(gpu="h100_sxm", prefill_replicas=1, prefill_gpu="h200_sxm", replicas=2)
    (option,) = plan_fleets(pools, DEMAND).options
    assert option.fleet is not None
    assert option.fleet.gpus == 3 * option.fleet.units
    assert option.deployment.prefill_replicas == option.fleet.units
    assert option.deployment.replicas == 2 * option.fleet.units
    h100, h200 = (get_gpu(name).cloud_price_usd_hour or 0 for name in ("h100", "h200"))
    rent = option.fleet.units * (2 * h100 + h200) * HOURS_A_MONTH
    assert option.fleet.rent_usd_month == pytest.approx(rent)


def test_limits_that_nothing_keeps_are_infeasible_with_the_cause() -> None:
    found = plan_fleets(space(gpu="h100_sxm", slos={"ttft": {"p95": 1}}), DEMAND)
    assert found.feasible == []
    assert found.causes == {"a limit is missed at any load": 1}
    assert "TTFT" in found.options[0].reason


def test_a_gpu_budget_bounds_the_fleet() -> None:
    found = plan_fleets(space(gpu="l40s", max_gpus=2), Demand(requests_s=(50.0,)))
    assert found.causes == {"more GPUs than max_gpus": 1}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"slos": {}}, "no limit"),
        ({"replicas": [1, 2]}, "replicas"),
        ({"autoscaler": "threshold"}, "autoscaler"),
        ({"n_trials": 2}, "3 candidates"),
        ({"workload": {"request_rate": 3}}, "request_rate"),
    ],
)
def test_spaces_that_are_no_plan_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        plan_fleets(space(**changes), DEMAND)
