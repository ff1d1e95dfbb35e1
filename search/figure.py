"""The frontier as a picture: speed per user against throughput per GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynosim.hardware_models.errors import unknown_name
from dynosim.search.metric import METRICS
from dynosim.search.trial import Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dynosim.search.dimension import Dimension
    from dynosim.search.result import SearchResult
    from dynosim.sim.deployment import Deployment

# Okabe and Ito's palette (Color Universal Design, jfly.uni-koeln.de/color, 2008), ordered so that
# neighbours differ in lightness too and stay apart in greyscale.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
GREY = "#B8B8B8"
SLATE = "#606060"


def frontier_figure(
    result: SearchResult, metrics: tuple[str, str] | None = None, *, has_intervals: bool = False
) -> Figure:
    """Returns the figure: feasible trials by backend and GPU, infeasible grey, frontier, marks.

    Axes are ``metrics`` (across, up); by default the first two objectives (second across, first
    up), or where there is one objective, it against speed per user. ``has_intervals`` draws where
    four measurements in five are expected, for the frontier. UserError for an unknown metric.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.0), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = metrics or axis_metrics(result)
    for name in names:
        if name not in METRICS:
            raise unknown_name("metric", name, METRICS, where="metrics")
    _draw_trials(axes, result, names)
    _draw_frontier(axes, result, names)
    if has_intervals:
        _draw_intervals(axes, result, names)
    _draw_marks(axes, result, names)
    _dress(axes, result, names)
    # Laid out once, not anew for every format: that takes as long as drawing.
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)
        figure.set_layout_engine("none")
    return figure


def save_png(figure: Figure, path: Path) -> None:
    """Writes a figure with the same bytes for the same figure."""
    figure.savefig(path, format="png", metadata={"Software": None})


def save_svg(figure: Figure, path: Path) -> None:
    """Writes a figure as SVG with its text as text, with the same bytes for the same figure."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "dynosim", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def axis_metrics(result: SearchResult) -> tuple[str, str]:
    """Returns the metrics across and up: the second objective and the first."""
    names = [o.metric for o in result.space.objectives]
    if len(names) > 1:
        return names[1], names[0]
    speed, throughput = "output_tok_s_per_user", "output_tok_s_per_gpu"
    return (speed if names[0] != speed else throughput), names[0]


def _points(trials: Sequence[Trial], names: tuple[str, str]) -> tuple[list[float], list[float]]:
    shown = [t for t in trials if all(name in t.metrics for name in names)]
    return [t.metrics[names[0]] for t in shown], [t.metrics[names[1]] for t in shown]


def _draw_trials(axes: Axes, result: SearchResult, names: tuple[str, str]) -> None:
    infeasible = [t for t in result.trials if not t.is_feasible and t.is_simulated]
    if infeasible:
        label = f"infeasible ({len(infeasible)} simulated)"
        axes.scatter(*_points(infeasible, names), s=22, c=GREY, marker="x", label=label, zorder=1)
    groups: dict[str, list[Trial]] = {}
    for trial in result.trials:
        if trial.is_feasible:
            groups.setdefault(_group(result, trial), []).append(trial)
    for i, name in enumerate(sorted(groups, key=lambda n: _order(result, groups[n][0]))):
        axes.scatter(
            *_points(groups[name], names),
            s=34,
            marker=MARKERS[i % len(MARKERS)],
            facecolors=COLOURS[i % len(COLOURS)],
            edgecolors="white",
            linewidths=0.5,
            label=f"{name} ({len(groups[name])})",
            zorder=2,
        )


def _group(result: SearchResult, trial: Trial) -> str:
    """Returns what sets a point's marker: backend, and GPU or model where these vary."""
    kinds = [d.name for d in _kinds(result)] or ["backend"]
    return ", ".join(str(getattr(trial.deployment, k)) for k in kinds)


def _order(result: SearchResult, trial: Trial) -> tuple[int, ...]:
    """Returns where a trial's group stands among others: as the space was written, as in reports.

    A value that a condition of the space put in comes last.
    """
    values = [(d.values, getattr(trial.deployment, d.name)) for d in _kinds(result)]
    return tuple(known.index(v) if v in known else len(known) for known, v in values)


def _kinds(result: SearchResult) -> list[Dimension]:
    names = ("model", "gpu", "backend", "backend_version")
    return [d for d in result.space.varied if d.name in names]


def _draw_frontier(axes: Axes, result: SearchResult, names: tuple[str, str]) -> None:
    x, y = _points(result.frontier, names)
    if not x:
        return
    rings: dict[str, Any] = {"facecolors": "none", "edgecolors": "black", "linewidths": 1.1}
    if len(result.space.objectives) == 2 and names == axis_metrics(result):
        pairs = sorted(zip(x, y, strict=True))
        axes.plot(*zip(*pairs, strict=True), "k-", lw=1.4, label=f"frontier ({len(x)})", zorder=3)
    else:
        rings["label"] = f"on the frontier ({len(x)})"
    axes.scatter(x, y, s=70, zorder=4, **rings)


def _draw_intervals(axes: Axes, result: SearchResult, names: tuple[str, str]) -> None:
    from dynosim.search.report.intervals import metric_interval

    for trial in result.frontier:
        if not all(name in trial.metrics for name in names):
            continue
        x, y = (trial.metrics[name] for name in names)
        across, up = (metric_interval(trial, name, is_open=result.is_open) for name in names)
        if across is not None:
            axes.plot(across, (y, y), color=SLATE, linewidth=1.0, marker="|", zorder=2.5)
        if up is not None:
            axes.plot((x, x), up, color=SLATE, linewidth=1.0, marker="_", zorder=2.5)
    axes.plot([], [], color=SLATE, linewidth=1.0, label="80 % of measurements expected here")


def _draw_marks(axes: Axes, result: SearchResult, names: tuple[str, str]) -> None:
    within = "cheapest within SLO" if result.space.slos else "cheapest"
    marked = (("knee", result.knee, "*", "#D55E00"), (within, result.cheapest, "P", "#F0E442"))
    labels: dict[int, list[str]] = {}
    for name, trial, marker, colour in marked:
        if trial is None:
            continue
        labels.setdefault(trial.number, []).append(name)
        style: dict[str, Any] = {"marker": marker, "facecolors": colour, "edgecolors": "black"}
        label = f"{name}: {short_name(trial)}"
        axes.scatter(
            *_points([trial], names), s=170, linewidths=1.0, zorder=5, label=label, **style
        )
    for trial in result.trials:
        if trial.number in labels:
            (x,), (y,) = _points([trial], names)
            text = ", ".join(labels[trial.number])
            at: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "zorder": 6}
            backed = {"boxstyle": "round,pad=0.15", "facecolor": "white", "linewidth": 0}
            axes.annotate(text, (x, y), (11, 9), bbox=backed | {"alpha": 0.75}, **at)


def short_name(trial: Trial) -> str:
    """Returns a deployment in a few words: ``vllm TP2 ×4 on h200_sxm``, prefill engines first."""
    pools = [p for p in (trial.deployment.prefill_pool, trial.deployment.decode_pool) if p]
    gpus = dict.fromkeys(pool.gpu for pool in pools)
    return f"{trial.deployment.backend} {' + '.join(map(_engines, pools))} on {' + '.join(gpus)}"


def _engines(pool: Deployment) -> str:
    stages = f" PP{pool.pipeline_parallel_size}" if pool.pipeline_parallel_size > 1 else ""
    stages += f" DP{pool.data_parallel_size}" if pool.data_parallel_size > 1 else ""
    return f"TP{pool.tensor_parallel_size}{stages} ×{pool.replicas}"


def _dress(axes: Axes, result: SearchResult, names: tuple[str, str]) -> None:
    axes.set_xlabel(METRICS[names[0]].axis)
    axes.set_ylabel(METRICS[names[1]].axis)
    better = {"maximize": ("right", "up"), "minimize": ("left", "down")}
    ways = better[METRICS[names[0]].better][0], better[METRICS[names[1]].better][1]
    models = sorted({str(t.deployment.model) for t in result.trials})
    axes.set_title(
        f"{', '.join(models[:3])}: {len(result.frontier)} on the frontier of "
        f"{len(result.trials)} trials\nbetter is {ways[1]} and to the {ways[0]}"
        + (f"; SLO: {', '.join(map(str, result.space.slos))}" if result.space.slos else ""),
        fontsize=11,
    )
    axes.grid(visible=True, color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.margins(0.08)
    unseen = [f"{n} {reason}" for reason, n in _unseen(result).items()]
    if unseen:
        axes.annotate(
            "never started: " + ", ".join(unseen),
            (0.0, -0.13),
            xycoords="axes fraction",
            fontsize=8,
            color="#606060",
        )
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, framealpha=0.9, loc="best")


def _unseen(result: SearchResult) -> dict[str, int]:
    counts: dict[str, int] = {}
    for trial in result.trials:
        if trial.reason is not None and not trial.is_simulated:
            counts[trial.reason] = counts.get(trial.reason, 0) + 1
    return dict(sorted(counts.items()))
