"""What was measured, laid over the predicted frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    drawn = [
        m for m in measured if m and _at(m.metrics, names) and _at(m.pick.trial.metrics, names)
    ]
    _draw_picks(axes, drawn, names, verdict)
    _dress(axes, result, names, verdict)
    return figure


def _at(metrics: dict[str, float] | object, names: tuple[str, str]) -> tuple[float, float] | None:
    values = [metrics.get(n, math.nan) for n in names] if isinstance(metrics, dict) else []
    return (values[0], values[1]) if values and all(map(math.isfinite, values)) else None


def _draw_run(axes: Axes, result: SearchResult, names: tuple[str, str]) -> None:
    others = _points([t for t in result.trials if t.is_feasible], names)
    axes.scatter(*others, s=14, c=GREY, marker=".", label="feasible trials", zorder=1)
    x, y = _points(result.frontier, names)
    pairs = sorted(zip(x, y, strict=True))
    axes.plot(*zip(*pairs, strict=True), color="black", linewidth=1.2, linestyle="--", zorder=2,
              label="predicted frontier")  # fmt: skip


def _points(trials: Sequence[Trial], names: tuple[str, str]) -> tuple[list[float], list[float]]:
    found = [at for t in trials if (at := _at(dict(t.metrics), names))]
    return [x for x, _ in found], [y for _, y in found]


def _draw_picks(
    axes: Axes, drawn: Sequence[Measured], names: tuple[str, str], verdict: Verdict
) -> None:
    for i, one in enumerate(drawn):
        start, end = _at(dict(one.pick.trial.metrics), names), _at(one.metrics, names)
        assert start is not None and end is not None, "not drawn"
        axes.annotate(
            "",
            xy=end,
            xytext=start,
            arrowprops={"arrowstyle": "->", "color": "#404040", "lw": 1.2, "shrinkA": 5},
            zorder=4,
        )
        is_first = i == 0
        axes.scatter(*start, s=64, facecolors="white", edgecolors=PREDICTED, linewidths=1.8,
                     zorder=5, label="predicted" if is_first else None)  # fmt: skip
        low_high = [_range(one, name) for name in names]
        axes.errorbar(
            *end,
            xerr=[[end[0] - low_high[0][0]], [low_high[0][1] - end[0]]],
            yerr=[[end[1] - low_high[1][0]], [low_high[1][1] - end[1]]],
            fmt="D",
            color=SEEN,
            markeredgecolor="black",
            ms=7,
            capsize=3,
            zorder=6,
            label="measured, with its repeats" if is_first else None,
        )
        words = f"{one.pick.number}" + (" (winner)" if one.pick.number == verdict.winner else "")
        axes.annotate(words, end, (9, 7), textcoords="offset points", fontsize=9, zorder=7)


def _range(measured: Measured, name: str) -> tuple[float, float]:
    values = [r[name] for r in measured.repeats]
    return min(values), max(values)


def _dress(axes: Axes, result: SearchResult, names: tuple[str, str], verdict: Verdict) -> None:
    axes.set_xlabel(METRICS[names[0]].axis)
    axes.set_ylabel(METRICS[names[1]].axis)
    models = sorted({str(t.deployment.model) for t in result.trials})
    title = f"{', '.join(models[:3])}: predicted and measured\nverdict: {verdict.word}"
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.margins(0.1)
    axes.legend(fontsize=8, framealpha=0.9, loc="best")
