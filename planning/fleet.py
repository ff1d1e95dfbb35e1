"""A fleet of one kind of unit: how many a demand needs, what they cost and draw.

A unit is what is multiplied: one replica, or with two pools so many of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dynosim.hardware_models.gpus import Gpu
from dynosim.planning.demand import Demand
from dynosim.planning.prices import HOURS_A_MONTH, Prices

Unit = tuple[tuple[Gpu, int], ...]
"""GPUs and how many of each, a pool each."""


@dataclass(frozen=True, kw_only=True)
class Reserve:
    """``headroom`` is a share of the demand that stays free; ``spare`` units may be down."""

    headroom: float = 0.2
    spare: int = 1


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """``units`` of them, ``gpus`` in all; rates in requests/s, money in dollars.

    ``units_of_hours`` follow the demand hour by hour, the spare ones included. Costs are None
    where there is no price. ``break_even_months`` is when buying has cost no more than renting:
    infinite where owning costs more a month than renting.
    """

    units: int
    gpus: int
    units_of_hours: tuple[int, ...]
    rent_usd_month: float | None
    rent_usd_month_scaled: float | None
    usd_per_million_output_tokens: float | None
    mean_watts: float
    electricity_usd_month: float | None
    purchase_usd: float | None
    break_even_months: float | None


def units_for(rate: float, capacity: float, reserve: Reserve) -> int:
    """Returns how many units serve ``rate``, each up to ``capacity``, with the reserve."""
    return max(1, math.ceil(rate * (1.0 + reserve.headroom) / capacity - 1e-9)) + reserve.spare


def size_fleet(
    demand: Demand,
    capacity: float,
    reserve: Reserve,
    *,
    unit: Unit,
    output_tokens: float,
    watts_at: Callable[[float], float],
    prices: Prices,
) -> Fleet:
    """Returns the fleet for a demand.

    ``capacity`` is a unit's (requests/s); ``watts_at`` says what its boards draw at a rate.
    ``output_tokens`` is the mean answer.
    """
    units = units_for(demand.peak, capacity, reserve)
    hours = tuple(units_for(rate, capacity, reserve) for rate in demand.requests_s)
    gpus = units * sum(count for _, count in unit)
    rent = _total(unit, lambda gpu: prices.rent(gpu).usd)
    month = None if rent is None else rent * units * HOURS_A_MONTH
    watts = units * watts_at(demand.mean / units)
    power = _electricity(watts, prices)
    boards = _total(unit, lambda gpu: prices.purchase(gpu).usd)
    purchase = None if boards is None else units * boards + gpus * prices.server_usd_gpu
    tokens_month = demand.mean * output_tokens * HOURS_A_MONTH * 3600
    return Fleet(
        units=units,
        gpus=gpus,
        units_of_hours=hours,
        rent_usd_month=month,
        rent_usd_month_scaled=None if month is None else month * sum(hours) / len(hours) / units,
        usd_per_million_output_tokens=None if month is None else month / tokens_month * 1e6,
        mean_watts=watts,
        electricity_usd_month=power,
        purchase_usd=purchase,
        break_even_months=_break_even(month, purchase, gpus, power, prices),
    )


def _electricity(watts: float, prices: Prices) -> float | None:
    if prices.electricity_usd_kwh is None:
        return None
    return watts / 1e3 * prices.pue * HOURS_A_MONTH * prices.electricity_usd_kwh


def _total(unit: Unit, figure: Callable[[Gpu], float | None]) -> float | None:
    """Returns a figure of all GPUs of a unit together; None where one of them has none."""
    found = [(figure(gpu), count) for gpu, count in unit]
    known = [value * count for value, count in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def _break_even(
    rent_month: float | None,
    purchase: float | None,
    gpus: int,
    power_month: float | None,
    prices: Prices,
) -> float | None:
    if rent_month is None or purchase is None:
        return None
    saved = rent_month - gpus * prices.hosting_usd_gpu_month - (power_month or 0.0)
    return purchase / saved if saved > 0 else math.inf
