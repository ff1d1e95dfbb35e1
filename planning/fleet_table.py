"""A fleet plan as a table: an option a row, the cheapest first, those that serve nothing last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynosim.hardware_models.gpus import get_gpu

if TYPE_CHECKING:
    from dynosim.planning.fleet_plan import FleetPlan, Option

COLUMNS = (
    *("gpu", "backend", "tensor_parallel_size", "on_frontier", "units", "gpus"),
    *("capacity_requests_s", "use_of_limit", "usd_month", "usd_month_scaled"),
    *("usd_per_million_output_tokens", "mean_kw", "gpus_demand_less", "gpus_demand_more"),
    *("gpus_expected_low", "gpus_expected_high", "purchase_usd", "break_even_months"),
    *("narrowest", "reason"),
)


def columns(plan: FleetPlan) -> list[str]:
    """Returns COLUMNS, with the latency at the peak of every limit after ``use_of_limit``."""
    at = COLUMNS.index("use_of_limit") + 1
    return [*COLUMNS[:at], *(slo.metric for slo in plan.slos), *COLUMNS[at:]]


def rows(plan: FleetPlan) -> list[dict[str, Any]]:
    """Returns one mapping an option; keys are those of :func:`columns`, absent: unknown.

    Money in dollars, ``usd_month`` is rent; ``gpus_demand_less`` and ``gpus_demand_more`` are for a
    fifth less and more demand, ``gpus_expected_low`` and ``_high`` for the ends of the model's
    error.
    """
    refused = [option for option in plan.options if option.fleet is None]
    return [_row(plan, option) for option in (*plan.feasible, *refused)]


def _row(plan: FleetPlan, option: Option) -> dict[str, Any]:
    unit, fleet = option.unit, option.fleet
    row: dict[str, Any] = {
        "gpu": get_gpu(unit.gpu).key,
        "backend": unit.backend,
        "tensor_parallel_size": unit.tensor_parallel_size,
        "on_frontier": option in plan.frontier,
        "capacity_requests_s": option.capacity,
        "reason": option.reason,
    }
    if fleet is None or option.at_peak is None:
        return row
    low, high = option.units_expected or (None, None)
    return row | {
        "units": fleet.units,
        "gpus": fleet.gpus,
        "use_of_limit": option.use_of_limit,
        **{slo.metric: option.at_peak.latencies_ms[slo.metric] for slo in plan.slos},
        "usd_month": fleet.rent_usd_month,
        "usd_month_scaled": fleet.rent_usd_month_scaled,
        "usd_per_million_output_tokens": fleet.usd_per_million_output_tokens,
        "mean_kw": fleet.mean_watts / 1e3,
        "gpus_demand_less": option.units_less * unit.num_gpus,
        "gpus_demand_more": option.units_more * unit.num_gpus,
        "gpus_expected_low": low and low * unit.num_gpus,
        "gpus_expected_high": high and high * unit.num_gpus,
        "purchase_usd": fleet.purchase_usd,
        "break_even_months": fleet.break_even_months,
        "narrowest": option.narrowest,
    }
