"""An ablation as a picture: what each layer adds, from the baseline to the tuned deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynosim.planning.ablation import Ablation, Step
from dynosim.search.figure import COLOURS, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UP, DOWN, ALONE = COLOURS[2], COLOURS[5], COLOURS[3]


def waterfall_figure(ablation: Ablation, unit: str, title: str) -> Figure:
    """Returns bars from each value to the next; diamonds are each layer alone on the baseline."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 5.0), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw(axes, ablation)
    axes.set_ylabel(unit)
    axes.set_title(title, fontsize=10)
    axes.grid(visible=True, axis="y", color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="upper left")
    # A layer that adds nothing is a bar of no height, at whose edge margins would end.
    axes.use_sticky_edges = False
    axes.margins(y=0.12)
    axes.set_ylim(bottom=0.0)
    return figure


def _draw(axes: Axes, ablation: Ablation) -> None:
    names = ["baseline", *(step.layer for step in ablation.steps), "tuned"]
    last = len(names) - 1
    start, end = ablation.baseline.value, ablation.tuned.value
    axes.bar([0, last], [start, end], color=[GREY, COLOURS[0]], width=0.6)
    _label(axes, 0, start, f"{start:,.4g}")
    _label(axes, last, end, f"{end:,.4g}\n×{ablation.factor:.3g}")
    before = start
    for x, step in enumerate(ablation.steps, 1):
        after = step.together.value
        colour = UP if after >= before else DOWN
        axes.bar(x, abs(after - before), bottom=min(before, after), color=colour, width=0.6)
        axes.plot([x - 0.7, x + 0.3], [before, before], color="black", linewidth=0.8)
        _label(axes, x, max(before, after), _times(step, before))
        before = after
    axes.plot([last - 0.7, last + 0.3], [before, before], color="black", linewidth=0.8)
    alone = [(x, s.alone.value) for x, s in enumerate(ablation.steps, 1) if not s.alone.reason]
    if alone:
        # Beside the bar's middle, where its factor stands.
        beside, values = [x - 0.2 for x, _ in alone], [value for _, value in alone]
        axes.scatter(beside, values, marker="D", s=34, color=ALONE, zorder=4, label="layer alone")
    axes.set_xticks(range(len(names)), [name.replace(" and ", "\nand ") for name in names])


def _times(step: Step, before: float) -> str:
    if step.together.reason:
        return "cannot run"
    return f"×{step.together.value / before:.3g}" if before else ""


def _label(axes: Axes, x: int, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (0, 3), textcoords="offset points", ha="center", fontsize=9)
