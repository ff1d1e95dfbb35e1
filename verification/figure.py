"""What was measured, laid over the predicted frontier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from dynosim.search.figure import COLOURS, GREY, axis_metrics
from dynosim.search.metric import METRICS
from dynosim.search.result import SearchResult
from dynosim.search.trial import Trial
from dynosim.verification.measured import Measured
from dynosim.verification.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PREDICTED, SEEN = COLOURS[0], COLOURS[5]
Point = tuple[float, float]
Names = tuple[str, str]


def overlay_figure(result: SearchResult, measured: Sequence[Measured], verdict: Verdict) -> Figure:
    """Returns the figure: the frontier and, for each pick, an arrow from predicted to measured.

    Predictions are hollow circles, measurements filled diamonds with bars over their repeats, so
    that neither colour nor greyscale is needed to tell them apart. Axes are those of
    ``frontier.png``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.0), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = axis_metrics(result)
    _draw_run(axes, result, names)
    _draw_picks(axes, measured, names, verdict)
    _dress(axes, result, names, verdict)
    return figure


def _at(metrics: Mapping[str, float], names: Names) -> Point | None:
    """Returns where a trial lies; None where one of the two metrics is not known."""
    x, y = (metrics.get(name, math.nan) for name in names)
    return (x, y) if math.isfinite(x) and math.isfinite(y) else None


def _draw_run(axes: Axes, result: SearchResult, names: Names) -> None:
    x, y = _points([t for t in result.trials if t.is_feasible], names)
    axes.scatter(x, y, s=14, c=GREY, marker=".", label="feasible trials", zorder=1)
    pairs = sorted(zip(*_points(result.frontier, names), strict=True))
    axes.plot(
        [x for x, _ in pairs],
        [y for _, y in pairs],
        color="black",
        linewidth=1.2,
        linestyle="--",
        label="predicted frontier",
        zorder=2,
    )


def _points(trials: Sequence[Trial], names: Names) -> tuple[list[float], list[float]]:
    found = [at for t in trials if (at := _at(t.metrics, names))]
    return [x for x, _ in found], [y for _, y in found]


def _draw_picks(axes: Axes, measured: Sequence[Measured], names: Names, verdict: Verdict) -> None:
    labels = {"predicted": "predicted", "measured": "measured, with its repeats"}
    for one in measured:
        start, end = _at(one.pick.trial.metrics, names), _at(one.metrics, names)
        if start is None or end is None:
            continue
        _draw_arrow(axes, start, end, labels.pop("predicted", None))
        _draw_repeats(axes, one, names, end, labels.pop("measured", None))
        _draw_name(axes, one, start, end, verdict)


def _draw_name(axes: Axes, one: Measured, start: Point, end: Point, verdict: Verdict) -> None:
    """Writes a trial's number on the side of its measurement that its arrow does not come from."""
    words = f"{one.pick.number}" + (" (winner)" if one.pick.number == verdict.winner else "")
    side, align = (9, "left") if end[0] >= start[0] else (-9, "right")
    axes.annotate(words, end, (side, 5), textcoords="offset points", ha=align, fontsize=9, zorder=7)


def _draw_arrow(axes: Axes, start: Point, end: Point, label: str | None) -> None:
    style = {"arrowstyle": "->", "color": "#404040", "lw": 1.2, "shrinkA": 5}
    axes.annotate("", xy=end, xytext=start, arrowprops=style, zorder=4)
    axes.scatter(
        start[0],
        start[1],
        s=64,
        facecolors="white",
        edgecolors=PREDICTED,
        linewidths=1.8,
        zorder=5,
        label=label,
    )


def _draw_repeats(axes: Axes, one: Measured, names: Names, at: Point, label: str | None) -> None:
    """Draws a measurement with bars from its smallest to its largest repeat."""
    ends = [(min(r[n] for r in one.repeats), max(r[n] for r in one.repeats)) for n in names]
    bars = [[[centre - low], [high - centre]] for centre, (low, high) in zip(at, ends, strict=True)]
    axes.errorbar(
        at[0],
        at[1],
        xerr=bars[0],
        yerr=bars[1],
        fmt="D",
        color=SEEN,
        markeredgecolor="black",
        ms=7,
        capsize=3,
        zorder=6,
        label=label,
    )


def _dress(axes: Axes, result: SearchResult, names: Names, verdict: Verdict) -> None:
    axes.set_xlabel(METRICS[names[0]].axis)
    axes.set_ylabel(METRICS[names[1]].axis)
    models = sorted({_model_name(t.deployment.model) for t in result.trials})
    title = f"{', '.join(models[:3])}: predicted and measured\nverdict: {verdict.word}"
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.margins(0.1)
    axes.legend(fontsize=8, framealpha=0.9, loc="best")


def _model_name(model: str) -> str:
    """Returns a model's name; of one named by its configuration, that of the folder."""
    path = PurePath(model)
    return path.parent.name or model if path.suffix == ".json" else model
