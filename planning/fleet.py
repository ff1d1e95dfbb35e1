"""A fleet of one kind of replica: how many a demand needs, what they cost and draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.power import mean_watts
from dynosim.planning.demand import Demand
from dynosim.planning.prices import HOURS_A_MONTH, Prices


@dataclass(frozen=True, kw_only=True)
class Reserve:
    """``headroom`` is a share of the demand that stays free; ``spare`` replicas may be down."""

    headroom: float = 0.2
    spare: int = 1


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """``replicas`` of ``gpus_per_replica`` GPUs; rates in requests/s, money in dollars.

    ``replicas_of_hours`` follow the demand hour by hour, the spare ones included. Costs are None
    where there is no price. ``break_even_months`` is when buying has cost no more than renting:
    infinite where owning costs more a month than renting.
    """

    replicas: int
    gpus: int
    replicas_of_hours: tuple[int, ...]
    rent_usd_month: float | None
    rent_usd_month_scaled: float | None
    usd_per_million_output_tokens: float | None
    mean_watts: float
    electricity_usd_month: float | None
    purchase_usd: float | None
    break_even_months: float | None


def replicas_for(rate: float, capacity: float, reserve: Reserve) -> int:
    """Returns how many replicas serve ``rate``, each up to ``capacity``, with the reserve."""
    return max(1, math.ceil(rate * (1.0 + reserve.headroom) / capacity - 1e-9)) + reserve.spare


def size_fleet(
    demand: Demand,
    capacity: float,
    reserve: Reserve,
    *,
    gpu: Gpu,
    gpus_per_replica: int,
    output_tokens: float,
    busy_share_at: Callable[[float], float],
    prices: Prices,
) -> Fleet:
    """Returns the fleet for a demand.

    ``capacity`` is a replica's (requests/s); ``busy_share_at`` says which share of the time its
    engine computes at a rate. ``output_tokens`` is the mean answer.
    """
    replicas = replicas_for(demand.peak, capacity, reserve)
    hours = tuple(replicas_for(rate, capacity, reserve) for rate in demand.requests_s)
    gpus = replicas * gpus_per_replica
    rent = prices.rent(gpu).usd
    month = None if rent is None else rent * gpus * HOURS_A_MONTH
    watts = float(mean_watts(gpu, float(gpus), busy_share_at(demand.mean / replicas)))
    power = _electricity(watts, prices)
    purchase = _purchase(gpu, gpus, prices)
    tokens_month = demand.mean * output_tokens * HOURS_A_MONTH * 3600
    return Fleet(
        replicas=replicas,
        gpus=gpus,
        replicas_of_hours=hours,
        rent_usd_month=month,
        rent_usd_month_scaled=None if month is None else month * sum(hours) / len(hours) / replicas,
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


def _purchase(gpu: Gpu, gpus: int, prices: Prices) -> float | None:
    price = prices.purchase(gpu).usd
    return None if price is None else gpus * (price + prices.server_usd_gpu)


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
