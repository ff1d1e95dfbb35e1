"""A search's answer as a table for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynosim.search.explanation import overview
from dynosim.search.metric import METRICS
from dynosim.search.result import SearchResult
from dynosim.search.short_list import WITHIN
from dynosim.search.table import mark
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MAX_ROWS = 40
PIPE_COLUMNS = 200
TAIL_METRICS = ("p99_ttft_ms", "p99_tpot_ms")
SHAPE = (
    "replicas",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
)
SHORT_FIELDS = {
    "max_num_seqs": "seqs",
    "max_num_batched_tokens": "batched tokens",
    "gpu_memory_utilization": "GPU memory",
    "backend_version": "version",
}
TIMING_TEXTS = {
    "measured": "all measured on this GPU and backend",
    "transferred": "with ops transferred from another GPU or backend",
    "roofline": "with ops from a roofline",
}
SHORT_METRICS = {
    "output_tok_s_per_gpu": "tok/s/GPU",
    "output_tok_s_per_user": "tok/s/user",
    "usd_per_hour": "USD/h",
}


def print_result(result: SearchResult, console: Console | None = None) -> None:
    """Prints the frontier, its marks and what the other trials came to, on stdout.

    Where stdout is no terminal, without colour and never wrapped.
    """
    from rich.console import Console as RichConsole

    if console is None:
        console = RichConsole()
        if not console.is_terminal:
            console = RichConsole(width=PIPE_COLUMNS, color_system=None)
    if result.frontier:
        console.print(frontier_table(result))
    for line in summary_lines(result):
        console.print(line, highlight=False, soft_wrap=True)


def frontier_table(result: SearchResult) -> Table:
    """Returns the frontier as a table, without near duplicates; the cheapest is always in it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = _thinned(result.short_list, result)
    if result.cheapest is not None and result.cheapest not in shown:
        shown.append(result.cheapest)
    varied = [d.name for d in result.space.varied if d.name not in SHAPE]
    metrics = [o.metric for o in result.space.objectives]
    # The latencies that were bounded; where none was, the tails.
    bounded = [slo.metric for slo in result.space.slos] or TAIL_METRICS
    metrics += [m for m in (*bounded, "usd_per_hour") if m not in metrics]
    title = f"Frontier: {len(result.frontier)} of {len(result.trials)} trials"
    if {t.number for t in result.short_list} != {t.number for t in result.frontier}:
        title += f"; shown are the simplest {len(result.short_list)} within {WITHIN:.0%} of them"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("trial", justify="right")
    table.add_column("shape", no_wrap=True)
    for name in varied:
        is_text = isinstance(getattr(shown[0].deployment, name), str) if shown else True
        heading = SHORT_FIELDS.get(name, name.replace("_", " "))
        table.add_column(heading, justify="left" if is_text else "right")
    shares = ["sure"] if result.chances else []
    shares += ["best in"] if result.shares_best else []
    for name in ("GPUs", *map(_heading, metrics), *shares):
        table.add_column(name, justify="right")
    table.add_column("")
    for trial in shown:
        table.add_row(*_cells(result, trial, varied, metrics), style=_style(mark(result, trial)))
    return table


def _thinned(rows: Sequence[Trial], result: SearchResult) -> list[Trial]:
    """Returns at most MAX_ROWS of the frontier, evenly spread, the knee among them."""
    if len(rows) <= MAX_ROWS:
        return list(rows)
    kept = {round(i * (len(rows) - 1) / (MAX_ROWS - 1)) for i in range(MAX_ROWS)}
    return [t for i, t in enumerate(rows) if i in kept or t is result.knee]


def _heading(name: str) -> str:
    if name in SHORT_METRICS:
        return SHORT_METRICS[name]
    metric = METRICS[name]
    return f"{metric.label} {metric.unit}".strip()


def _cells(
    result: SearchResult, trial: Trial, varied: Sequence[str], metrics: Sequence[str]
) -> list[str]:
    d = trial.deployment
    fields = [getattr(d, name) for name in varied]
    return [
        str(trial.number),
        _shape(d),
        *("default" if value is None else str(value) for value in fields),
        str(d.num_gpus),
        *(_figure(trial.metrics.get(name)) for name in metrics),
        *([_share(_surety(result, trial))] if result.chances else []),
        *([_share(result.shares_best.get(trial.number))] if result.shares_best else []),
        _mark_text(result, trial),
    ]


def _surety(result: SearchResult, trial: Trial) -> float | None:
    """Returns how likely a row, or a trial that it stands for, is truly non-dominated."""
    chance = result.chances.get(trial.number) if trial in result.short_list else None
    return None if chance is None else chance.or_near


def _shape(deployment: Deployment) -> str:
    """Returns the engines of a deployment, those of a prefill pool first: ``3 × TP1 + 2 × TP4``."""
    pools = [deployment.prefill_pool, deployment.decode_pool]
    return " + ".join(_engines(pool) for pool in pools if pool is not None)


def _engines(pool: Deployment) -> str:
    stages = f" PP{pool.pipeline_parallel_size}" if pool.pipeline_parallel_size > 1 else ""
    stages += f" DP{pool.data_parallel_size}" if pool.data_parallel_size > 1 else ""
    return f"{pool.replicas} × TP{pool.tensor_parallel_size}{stages}"


def _figure(value: float | None) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _mark_text(result: SearchResult, trial: Trial) -> str:
    within = "cheapest within SLO" if result.space.slos else "cheapest"
    names = {"knee": "◆ knee", "cheapest": f"$ {within}"}
    return ", ".join(names[m] for m in mark(result, trial).split())


def _style(marks: str) -> str:
    return "bold" if marks else ""


def summary_lines(result: SearchResult) -> list[str]:
    """Returns what was tried, what was infeasible and why, and what bounds were kept."""
    feasible = sum(t.is_feasible for t in result.trials)
    how = "all candidates" if result.mode == "exhaustive" else f"of {result.space.size} candidates"
    lines = [
        f"{len(result.trials)} trials ({how}), {feasible} feasible"
        + (f", {result.ending}" if result.ending != "finished" else "")
    ]
    if result.reasons:
        counts = ", ".join(f"{n} {reason}" for reason, n in result.reasons.most_common())
        lines.append(f"infeasible: {counts}")
    if result.space.slos:
        lines.append(f"SLO: {', '.join(map(str, result.space.slos))}")
    if result.space.bounds:
        lines.append(f"constraints: {', '.join(map(str, result.space.bounds))}")
    lines.extend(_timing_lines(result))
    if result.chances:
        lines.append("sure: how likely a row, or one predicted alike, is truly non-dominated")
    lines.extend(overview(result))
    if not result.frontier:
        lines.append("no candidate is feasible: nothing to choose from")
        lines.extend(_examples(result))
    return lines


def _timing_lines(result: SearchResult) -> list[str]:
    """Returns where the kernel timings come from, and each warning with its number of trials."""
    sources = Counter(t.timing for t in result.trials if t.timing)
    named = ", ".join(f"{n} {TIMING_TEXTS[name]}" for name, n in sources.most_common())
    lines = [f"timings: {named}"] if named else []
    warnings = Counter(w for t in result.trials for w in t.warnings)
    return lines + [f"warning ({n} trials): {text}" for text, n in warnings.most_common()]


def _examples(result: SearchResult) -> list[str]:
    first: dict[str, str] = {}
    for trial in result.trials:
        if trial.reason is not None:
            first.setdefault(
                trial.reason, f"  {trial.reason}, trial {trial.number}: {trial.detail}"
            )
    return list(first.values())
