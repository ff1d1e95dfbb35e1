"""The sweep behind a capacity as a picture: latencies and throughput against the load."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dynosim.planning.capacity import Capacity
from dynosim.planning.load import UNITS
from dynosim.search.figure import COLOURS, GREY
from dynosim.search.metric import LATENCIES
from dynosim.search.slo import Slo

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GOOD, BAD = COLOURS[0], COLOURS[5]


def capacity_figure(capacity: Capacity, title: str) -> Figure:
    """Returns one panel for every limit, and one for the throughput, over the same loads."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = len(capacity.slos) + 1
    figure = Figure(figsize=(8.0, 1.4 + 2.3 * rows), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for axes, slo in zip(panels, capacity.slos, strict=False):
        _latency_panel(axes, capacity, slo)
    _throughput_panel(panels[-1], capacity)
    for axes in panels:
        _mark_capacity(axes, capacity)
        axes.grid(visible=True, color="#E6E6E6", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.legend(fontsize=8, framealpha=0.9, loc="upper left")
    _dress(panels[-1], capacity)
    figure.suptitle(title, fontsize=10)
    return figure


def _sizes(capacity: Capacity) -> list[float]:
    return [o.load.size for o in capacity.sweep]


def _latency_panel(axes: Axes, capacity: Capacity, slo: Slo) -> None:
    label = LATENCIES[slo.kind]
    medians = [o.latencies_ms[f"p50_{slo.kind}_ms"] for o in capacity.sweep]
    bounded = [o.latencies_ms[slo.metric] for o in capacity.sweep]
    axes.plot(_sizes(capacity), medians, color=COLOURS[4], marker="o", ms=4, label=f"p50 {label}")
    axes.plot(
        _sizes(capacity), bounded, color=GOOD, marker="o", ms=4, label=f"{slo.statistic} {label}"
    )
    axes.axhline(slo.limit_ms, color=BAD, linestyle="--", linewidth=1.2, label=f"limit {slo}")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(_some_ticks)
    axes.set_ylabel(f"{label} (ms)")


def _some_ticks(value: float, _: float) -> str:
    """Returns labels at 2 and 5 times a power of ten, so that short log axes have some."""
    digit = value / 10.0 ** math.floor(math.log10(value) + 1e-9)
    return f"{value:g}" if round(digit, 6) in (2.0, 5.0) else ""


def _throughput_panel(axes: Axes, capacity: Capacity) -> None:
    tokens = [o.metrics["output_tok_s_per_gpu"] for o in capacity.sweep]
    axes.plot(
        _sizes(capacity), tokens, color=COLOURS[2], marker="s", ms=4, label="output tok/s/GPU"
    )
    kept = [o.metrics["output_tok_s_per_gpu"] * o.ok / o.total for o in capacity.sweep]
    axes.plot(
        _sizes(capacity), kept, color=COLOURS[3], marker="^", ms=4, label="of it within limits"
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("tok/s/GPU")


def _mark_capacity(axes: Axes, capacity: Capacity) -> None:
    if capacity.at is None:
        return
    if capacity.low < capacity.high:
        axes.axvspan(capacity.low, capacity.high, color=GREY, alpha=0.5, linewidth=0)
    axes.axvline(capacity.value, color="black", linewidth=1.0)


def _dress(axes: Axes, capacity: Capacity) -> None:
    sizes = _sizes(capacity)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    room = capacity.room.kv_requests
    if capacity.kind == "concurrency" and room <= 2 * max(sizes):
        for panel in axes.figure.axes:
            panel.axvline(room, color=COLOURS[1], linestyle=":", linewidth=1.4)
    words = UNITS[capacity.kind]
    if capacity.at is not None:
        size = capacity.at.load.shown if len(capacity.per_seed) == 1 else f"{capacity.value:,.3g}"
        words += f"; line: capacity {size}, band: its 95 % interval over seeds"
    if capacity.kind == "concurrency" and room <= 2 * max(sizes):
        words += f"; dots: KV pool {room:,.0f}"
    axes.set_xlabel(words, fontsize=9)
