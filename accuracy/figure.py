"""Predicted against measured, one point a case, with bands of 10 and 25 %."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dynosim.accuracy.errors import Residual

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette (Color Universal Design, jfly.uni-koeln.de/color, 2008), ordered so that
# neighbours differ in lightness too; the marker says the same again, for greyscale.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
BANDS = ((0.10, "#D0D0D0"), (0.25, "#EBEBEB"))
FEW = 200
"""Points up to which they are drawn larger."""
UNITS = {"request_throughput": "requests/s", "output_throughput": "tokens/s"}


def accuracy_figure(found: Sequence[Residual], quantity: str) -> Figure:
    """Returns the figure of one quantity on logarithmic axes, points by backend."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.0), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shown = [r for r in found if r.quantity == quantity and r.predicted > 0]
    _draw_bands(axes, shown)
    for i, backend in enumerate(sorted({r.backend for r in shown})):
        points = np.array([(r.measured, r.predicted) for r in shown if r.backend == backend])
        axes.scatter(
            points[:, 0],
            points[:, 1],
            s=16 if len(shown) > FEW else 42,
            marker=MARKERS[i % len(MARKERS)],
            facecolors=COLOURS[i % len(COLOURS)],
            edgecolors="white",
            linewidths=0.3,
            label=f"{backend} ({len(points)})",
            zorder=3,
        )
    _dress(axes, quantity, shown)
    return figure


def save_png(figure: Figure, path: Path) -> None:
    """Writes a figure with the same bytes for the same figure."""
    figure.savefig(path, format="png", metadata={"Software": None})


def title_of(quantity: str) -> str:
    """Returns a quantity as readers write it: ``ttft`` is TTFT."""
    return quantity.upper() if len(quantity) <= 4 else quantity.replace("_", " ")


def _draw_bands(axes: Axes, shown: Sequence[Residual]) -> None:
    values = [v for r in shown for v in (r.measured, r.predicted)]
    ends = np.array([min(values) / 1.3, max(values) * 1.3])
    for width, colour in reversed(BANDS):
        lower, upper = ends * (1 - width), ends * (1 + width)
        axes.fill_between(ends, lower, upper, color=colour, linewidth=0, label=f"±{width:.0%}")
    axes.plot(ends, ends, color="black", linewidth=1.0, zorder=2)
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)


def _label_ticks(axes: Axes) -> None:
    """Labels every digit, 1, 2, 5, or powers of ten only: the wider the span, the fewer."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axes.get_xlim()
    subs: tuple[float, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9) if high < 5 * low else (1, 2, 5)
    if high > 100 * low:
        subs = (1,)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_minor_formatter(NullFormatter())
        if len(subs) > 1:
            axis.set_major_formatter("{x:g}")


def _dress(axes: Axes, quantity: str, shown: Sequence[Residual]) -> None:
    unit = UNITS.get(quantity, "ms")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_aspect("equal")
    _label_ticks(axes)
    axes.set_xlabel(f"measured {title_of(quantity)}, {unit}")
    axes.set_ylabel(f"predicted {title_of(quantity)}, {unit}")
    errors = np.array([r.error for r in shown])
    axes.set_title(
        f"{title_of(quantity)}: {len(shown):,} cases, median absolute error "
        f"{np.median(np.abs(errors)):.1%}, bias {np.median(errors):+.1%}",
        fontsize=10,
    )
    axes.grid(visible=True, which="major", color="#F5F5F5", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, framealpha=0.9, loc="upper left")
