"""Fleets for one demand as a picture: what they cost a month against their use of the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynosim.planning.fleet_plan import FleetPlan, Option
from dynosim.search.figure import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def fleet_figure(plan: FleetPlan, title: str) -> Figure:
    """Returns options by GPU and backend, and the frontier; to the left and down is better."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 5.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    groups: dict[str, list[Option]] = {}
    for option in plan.feasible:
        if option.fleet is not None and option.fleet.rent_usd_month is not None:
            d = option.deployment
            groups.setdefault(f"{d.gpu}, {d.backend}", []).append(option)
    for number, (name, options) in enumerate(sorted(groups.items())):
        colour = COLOURS[number % len(COLOURS)]
        marker = MARKERS[number % len(MARKERS)]
        axes.scatter(*_points(options), s=44, color=colour, marker=marker, label=name, zorder=3)
    axes.plot(*_points(plan.frontier), color="black", linewidth=1.3, label="frontier", zorder=2)
    for number, option in enumerate(plan.frontier, 1):
        (x,), (y,) = _points([option])
        axes.annotate(f"{number}", (x, y), (6, 6), textcoords="offset points", fontsize=9, zorder=5)
        # Neighbours on a flat frontier leave no room for names: those stand in the legend.
        axes.plot([], [], " ", label=f"{number}: {short(option)}")
    axes.set_xlabel("rent (thousand USD a month)")
    axes.set_ylabel("latency at peak (share of the limit)")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.14)
    axes.grid(visible=True, color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    if groups:
        axes.legend(fontsize=8, loc="best")
    axes.set_title(title, fontsize=10)
    return figure


def short(option: Option) -> str:
    """Returns an option in a few words."""
    d = option.deployment
    return f"{d.num_gpus} × {d.gpu}, TP {d.tensor_parallel_size}"


def _points(options: list[Option] | tuple[Option, ...]) -> tuple[list[float], list[float]]:
    fleets = [o.fleet for o in options if o.fleet is not None]
    months = [(f.rent_usd_month or 0.0) / 1e3 for f in fleets]
    return months, [o.use_of_limit for o in options]
