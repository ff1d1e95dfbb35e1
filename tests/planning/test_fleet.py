"""Fleets by hand: ten requests a second and a little arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.power import mean_watts
from dynosim.planning.demand import Demand
from dynosim.planning.fleet import Fleet, Reserve, size_fleet, units_for
from dynosim.planning.prices import HOURS_A_MONTH, Prices

H100 = get_gpu("h100_sxm")
PRICES = Prices(own={"h100_sxm": {"cloud_usd_hour": 2.0, "purchase_usd": 30_000.0}})


def fleet(demand: Demand, prices: Prices = PRICES) -> Fleet:
    return size_fleet(
        demand,
        4.0,
        Reserve(headroom=0.2, spare=1),
        unit=((H100, 2),),
        output_tokens=100.0,
        watts_at=lambda rate: mean_watts(H100, 2.0, rate / 4.0),
        prices=prices,
    )


def test_ten_requests_a_second_of_four_each() -> None:
    # 10 x 1.2 / 4 = 3, and one spare: 4 replicas of 2 GPUs.
    found = fleet(Demand(requests_s=(10.0,)))
    assert (found.units, found.gpus) == (4, 8)
    assert found.rent_usd_month == 8 * 2.0 * HOURS_A_MONTH
    # 10 requests x 100 tokens a second for $16 an hour.
    assert found.usd_per_million_output_tokens == pytest.approx(16 / 3600 / 1000 * 1e6)
    assert found.mean_watts == pytest.approx(mean_watts(H100, 8.0, 2.5 / 4))
    assert found.purchase_usd == 240_000
    assert found.break_even_months == pytest.approx(240_000 / (16 * HOURS_A_MONTH))


def test_a_fleet_follows_its_hours() -> None:
    found = fleet(Demand(requests_s=(10.0, 3.0)))
    assert found.units_of_hours == (4, 2)
    assert found.rent_usd_month is not None
    assert found.rent_usd_month_scaled == pytest.approx(found.rent_usd_month * 3 / 4)


def test_owning_pays_for_power_servers_and_hosting() -> None:
    dear = replace(
        PRICES, electricity_usd_kwh=0.1, pue=1.5, hosting_usd_gpu_month=50.0, server_usd_gpu=5_000.0
    )
    found = fleet(Demand(requests_s=(10.0,)), dear)
    assert found.electricity_usd_month == pytest.approx(
        found.mean_watts / 1e3 * 1.5 * HOURS_A_MONTH * 0.1
    )
    saved = 16 * HOURS_A_MONTH - 8 * 50 - found.electricity_usd_month
    assert found.break_even_months == pytest.approx(8 * 35_000 / saved)


def test_buying_never_pays_where_owning_costs_more_a_month() -> None:
    found = fleet(Demand(requests_s=(10.0,)), replace(PRICES, hosting_usd_gpu_month=5_000.0))
    assert found.break_even_months == math.inf


def test_what_has_no_price_has_no_cost() -> None:
    unknown = get_gpu("b300_sxm")
    found = size_fleet(
        Demand(requests_s=(1.0,)),
        4.0,
        Reserve(),
        unit=((replace(unknown, list_price_usd=None), 1), (H100, 1)),
        output_tokens=10.0,
        watts_at=lambda rate: 500.0,
        prices=Prices(),
    )
    assert (found.rent_usd_month, found.break_even_months) == (None, None)


@given(
    rate=st.floats(0.01, 1e4),
    capacity=st.floats(0.01, 100),
    headroom=st.floats(0, 1),
    spare=st.integers(0, 3),
)
def test_a_fleet_serves_its_demand_with_the_spare_ones_down(
    rate: float, capacity: float, headroom: float, spare: int
) -> None:
    replicas = units_for(rate, capacity, Reserve(headroom=headroom, spare=spare))
    left = replicas - spare
    assert left * capacity >= rate * (1 + headroom) * (1 - 1e-6)
    assert left == 1 or (left - 1) * capacity < rate * (1 + headroom) * (1 + 1e-6)
