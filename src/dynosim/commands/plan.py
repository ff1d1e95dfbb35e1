"""``dynosim plan``: how many of which GPU for a demand, what they cost, and where it is tight."""

from __future__ import annotations

import gc
import math
import textwrap
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dynosim.flags import Debug, Json, Quiet
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.outputs import check_writable
from dynosim.planning.demand import Demand, growth_factor, read_demand
from dynosim.planning.fleet import Fleet, Reserve
from dynosim.planning.fleet_plan import SWING, FleetPlan, Option, plan_fleets
from dynosim.planning.prices import Prices, read_prices
from dynosim.search.metric import LATENCIES
from dynosim.search.space import SearchSpace, load_space
from dynosim.slo_flag import SloWords, parse_slo_words
from dynosim.terminal import print_json, print_note, table

MOST_ROWS = 12

SpaceFile = Annotated[
    str,
    Parameter(
        metavar="SPACE",
        help="YAML file as for `dynosim search`: which GPUs, backends and sizes to consider, the "
        "mix of requests, the limits.",
    ),
]
Rate = Annotated[
    float | None,
    Parameter(
        metavar="REQUESTS/S",
        help="Requests per second at the peak; with a curve, what its peak is scaled to.",
    ),
]
Curve = Annotated[
    Path | None,
    Parameter(
        metavar="CSV", help="An hour a row, its last column requests per second: a day, a week."
    ),
]
Growth = Annotated[
    float, Parameter(metavar="SHARE", help="Growth of the demand a month: 0.05 is 5 %.")
]
Months = Annotated[float, Parameter(metavar="MONTHS", help="Plan for the demand after so long.")]
Headroom = Annotated[
    float, Parameter(metavar="SHARE", help="Share of the demand that stays free for surprises.")
]
Spare = Annotated[
    int,
    Parameter(
        metavar="INT", help="Replicas (or pairs of pools) that may be down at the peak (1: N+1)."
    ),
]
PriceFile = Annotated[
    Path | None,
    Parameter(
        metavar="FILE",
        help="YAML file of your prices: `gpus: {h100: {cloud_usd_hour: 2.5, purchase_usd: 30000}}`"
        ", electricity_usd_kwh, pue, hosting_usd_gpu_month, server_usd_gpu.",
    ),
]
Plot = Annotated[Path | None, Parameter(metavar="PNG", help="Draw cost against latency.")]


def plan_command(
    space: SpaceFile,
    /,
    *,
    demand: Rate = None,
    demand_curve: Curve = None,
    growth: Growth = 0.0,
    months: Months = 0.0,
    slo: SloWords = (),
    headroom: Headroom = Reserve.headroom,
    spare: Spare = Reserve.spare,
    prices: PriceFile = None,
    json: Json = False,
    plot: Plot = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Say how many of which GPU a demand needs, what they cost, and where it is tight.

    A demand that nothing serves is an answer, with its causes and the exit code 0.
    """
    gc.enable()
    check_writable({"--plot": plot})
    _check_numbers(headroom=headroom, spare=spare, months=months)
    wanted = _demand(demand, demand_curve).times(growth_factor(growth, months))
    searched = load_space(space)
    if slo:
        searched = replace(searched, slos=parse_slo_words(slo))
    priced = read_prices(prices) if prices is not None else Prices()
    found = plan_fleets(
        searched, wanted, reserve=Reserve(headroom=headroom, spare=spare), prices=priced
    )
    if json:
        print_json(as_json(found, priced))
    else:
        print("\n".join(as_text(found, searched, priced)))
    if plot is not None:
        from dynosim.planning.fleet_figure import fleet_figure
        from dynosim.search.figure import save_png

        save_png(fleet_figure(found, "\n".join(_head(found, searched)[:2])), plot)
    for note in _notes(found, priced):
        print_note(f"note: {note}", quiet=quiet)


def _check_numbers(**numbers: float) -> None:
    for name, value in numbers.items():
        if not 0 <= value < math.inf:
            raise UserError(f"found {value:g}", where=f"--{name}", hint="allowed: >= 0")


def _demand(rate: float | None, curve: Path | None) -> Demand:
    if rate is not None and not 0 < rate < math.inf:
        raise UserError(f"found {rate:g}", where="--demand", hint="allowed: requests/s > 0")
    if curve is not None:
        found = read_demand(curve)
        return found if rate is None else found.times(rate / found.peak)
    if rate is None:
        hint = "allowed: --demand 20 (requests/s), or --demand-curve day.csv"
        raise UserError("no demand is given", where="--demand", hint=hint)
    return Demand(requests_s=(rate,))


def as_text(found: FleetPlan, space: SearchSpace, prices: Prices) -> list[str]:
    """Returns one screen: the options in order of rent, those on the frontier marked."""
    lines = _head(found, space)
    feasible = found.feasible
    if not feasible:
        lines += ["", f"Infeasible: none of {len(found.options)} options serves this demand."]
        return lines + _refused(found, MOST_ROWS)
    lines += ["", _table(found, feasible[:MOST_ROWS])]
    if len(feasible) > MOST_ROWS:
        lines.append(f"… and {len(feasible) - MOST_ROWS} dearer options (--json has all)")
    lines += ["", *_best(feasible[0], found, prices)]
    return [*lines, *_refused(found, 3)]


def _head(found: FleetPlan, space: SearchSpace) -> list[str]:
    d = found.demand
    hours = f", mean {d.mean:,.4g} over {len(d.requests_s)} hours" if len(d.requests_s) > 1 else ""
    models = sorted({str(o.deployment.model) for o in found.options})
    reserve = found.reserve
    return [
        f"{', '.join(models)}: {d.peak:,.4g} requests/s at peak{hours}",
        f"limits: {', '.join(map(str, found.slos))}; {reserve.headroom:.0%} headroom, "
        f"{reserve.spare} spare",
    ]


def _table(found: FleetPlan, options: list[Option]) -> str:
    heads = [f"{s.statistic} {LATENCIES[s.kind]}" for s in found.slos]
    header = ["", "Option", "GPUs", "req/s each", *(f"{h} ms" for h in heads)]
    header += ["of limit", "$/month", "$/M tok", "kW", f"GPUs ±{SWING:.0%}", "even (months)"]
    return table(header, [_row(found, option) for option in options], left=2)


def _row(found: FleetPlan, option: Option) -> list[str]:
    fleet, peak = option.fleet, option.at_peak
    assert fleet is not None, "no fleet"
    assert peak is not None, "no fleet"
    size = option.unit.num_gpus
    return [
        "*" if option in found.frontier else "",
        f"{fleet.units} × {_unit(option)}",
        f"{fleet.gpus}",
        f"{option.capacity:,.3g}",
        *(f"{peak.latencies_ms[s.metric]:,.0f}" for s in found.slos),
        f"{option.use_of_limit:.0%}",
        _usd(fleet.rent_usd_month, ",.0f"),
        _usd(fleet.usd_per_million_output_tokens, ",.2f"),
        f"{fleet.mean_watts / 1e3:,.1f}",
        f"{option.units_less * size}–{option.units_more * size}",
        _months(fleet),
    ]


def _unit(option: Option) -> str:
    d = option.unit
    shape = f"TP {d.tensor_parallel_size}"
    shape += f" PP {d.pipeline_parallel_size}" if d.pipeline_parallel_size > 1 else ""
    shape += f" DP {d.data_parallel_size}" if d.data_parallel_size > 1 else ""
    precision = f" {d.quantization}" if d.quantization else ""
    gpu = get_gpu(d.gpu).key
    if d.prefill_replicas:
        prefill = get_gpu(d.prefill_gpu or d.gpu).key
        gpu = f"{d.prefill_replicas} prefill {prefill} + {d.replicas} decode {gpu}"
    return f"({gpu} {shape}, {d.backend}{precision})"


def _usd(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _months(fleet: Fleet) -> str:
    months = fleet.break_even_months
    return "–" if months is None else "never" if math.isinf(months) else f"{months:,.1f}"


def _best(best: Option, found: FleetPlan, prices: Prices) -> list[str]:
    fleet, gpu = best.fleet, get_gpu(best.deployment.gpu)
    assert fleet is not None, "no fleet"
    rent, purchase = prices.rent(gpu), prices.purchase(gpu)
    rows = [("Cheapest", f"{fleet.units} × {_unit(best)}, {fleet.gpus} GPUs")]
    if fleet.rent_usd_month is not None and len(found.demand.requests_s) > 1:
        scaled = _usd(fleet.rent_usd_month_scaled, ",.0f")
        rows.append(
            (
                "Scaled hourly",
                f"${scaled} a month, {min(fleet.units_of_hours)} to "
                f"{max(fleet.units_of_hours)} of them",
            )
        )
    rows.append(("Narrowest", best.narrowest))
    if best.units_expected is not None:
        low, high = (n * best.unit.num_gpus for n in best.units_expected)
        rows.append(("Expect", f"{low} to {high} GPUs where predictions err as 80 % of measured"))
    rows.append(("Rent", f"${_usd(rent.usd, ',.2f')} a GPU-hour ({rent.source})"))
    if purchase.usd is not None:
        rows.append(("Buy", f"${purchase.usd:,.0f} a GPU ({purchase.source})"))
    power = "boards at their mean load; no price of electricity is given"
    if fleet.electricity_usd_month is not None:
        power = f"${fleet.electricity_usd_month:,.0f} a month of electricity"
    rows.append(("Power", f"{fleet.mean_watts / 1e3:,.1f} kW, {power}"))
    return [f"{name:<14} {text}" for name, text in rows]


def _refused(found: FleetPlan, most: int) -> list[str]:
    refused = [o for o in found.options if o.fleet is None]
    lines = [
        f"{'Not possible':<14} {_unit(o)}: {textwrap.shorten(o.reason, 135, placeholder=' …')}"
        for o in refused[:most]
    ]
    if len(refused) > most:
        causes = ", ".join(f"{n} {cause}" for cause, n in sorted(found.causes.items()))
        lines.append(f"               all {len(refused)} refused: {causes}")
    return lines


def _notes(found: FleetPlan, prices: Prices) -> list[str]:
    notes = []
    unpriced = sorted(
        {o.deployment.gpu for o in found.feasible if o.fleet and o.fleet.rent_usd_month is None}
    )
    if unpriced:
        notes.append(f"no rent is known of {', '.join(unpriced)}: give one with --prices")
    if any(o.fleet and o.fleet.break_even_months is not None for o in found.options):
        parts = [] if prices.server_usd_gpu else ["servers"]
        parts += [] if prices.electricity_usd_kwh else ["electricity"]
        parts += [] if prices.hosting_usd_gpu_month else ["hosting"]
        if parts:
            missing = ", ".join(parts)
            notes.append(f"owning is counted without {missing}: --prices may name them")
    return notes


def as_json(found: FleetPlan, prices: Prices) -> dict[str, Any]:
    """Returns the plan as plain values; rates in requests/s, money in dollars."""
    return {
        "demand": {"peak": found.demand.peak, "mean": found.demand.mean}
        | {"hours": list(found.demand.requests_s)},
        "reserve": asdict(found.reserve),
        "slos_ms": {slo.metric: slo.limit_ms for slo in found.slos},
        "is_feasible": bool(found.feasible),
        "frontier": [found.options.index(option) for option in found.frontier],
        "options": [_option_json(option, found, prices) for option in found.options],
    }


def _option_json(option: Option, found: FleetPlan, prices: Prices) -> dict[str, Any]:
    gpu = get_gpu(option.deployment.gpu)
    answer: dict[str, Any] = {
        "unit": asdict(option.unit),
        "deployment": asdict(option.deployment),
        "capacity_requests_s": option.capacity,
        "reason": option.reason or None,
        "rent_usd_gpu_hour": asdict(prices.rent(gpu)),
        "purchase_usd_gpu": asdict(prices.purchase(gpu)),
    }
    if option.fleet is None or option.at_peak is None:
        return answer | {"fleet": None}
    months = option.fleet.break_even_months
    finite = None if months is None or math.isinf(months) else months
    latencies = option.at_peak.latencies_ms
    return answer | {
        "fleet": asdict(option.fleet) | {"break_even_months": finite},
        "latency_at_peak_ms": {s.metric: latencies[s.metric] for s in found.slos},
        "use_of_limit": option.use_of_limit,
        "narrowest": option.narrowest,
        "units_demand_20_percent_less": option.units_less,
        "units_demand_20_percent_more": option.units_more,
        "units_expected_80": option.units_expected,
    }
