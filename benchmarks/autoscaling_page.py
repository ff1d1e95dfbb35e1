"""Writes docs/autoscaling.md and its figure: published studies of scaling, in kind and direction.

python benchmarks/autoscaling_page.py > docs/autoscaling.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.startup.plan import plan_startup
from dynosim.question import Question, read_question
from dynosim.sim.cluster.scaling.at_once import start_at_once
from dynosim.sim.cluster.scaling.planning import start_spec
from dynosim.sim.cluster.scaling.states import State
from dynosim.sim.metrics import Metrics
from dynosim.sim.simulate import Simulation, simulate
from dynosim.sim.workload.build import build_workload

EXAMPLES = Path("examples/autoscaling")
FIGURE = Path("docs/images/autoscaling.png")
INTERVALS_S = (1, 5, 10, 30, 60, 120, 300)
STARTS_S = (0, 60, 120, 180, 200, 240, 300)
PUBLISHED_INTERVALS = {1: "3.1–3.6", 5: "3.1–3.6", 10: "3.1–3.6", 60: "47", 300: "249"}
PUBLISHED_STARTS = {180: "SLO held", 200: "SLO held", 300: "242"}
REMEDIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("cold start", {}),
    ("cold start, graphs compiled before", {"startup_compile_cache": True}),
    ("weights streamed", {"startup": "stream"}),
    ("snapshot", {"startup": "snapshot"}),
    ("snapshot, half of the restores fail", {"startup": "snapshot", "snapshot_failure_rate": 0.5}),
    ("asleep, level 2 (weights read again)", {"startup": "sleep_2"}),
    ("asleep, level 1 (weights in host memory)", {"startup": "sleep_1"}),
    ("warm reserve of 2", {"warm_replicas": 2}),
    ("warm reserve of 5", {"warm_replicas": 5}),
)
SLO = {"ttft": 2000.0}
_FIXED: dict[str, Any] = {"autoscaler": None, "max_replicas": None, "prefill_max_replicas": None}
_FIXED |= {"prefill_autoscaler_target": None, "autoscaler_target": None, "startup_s": None}
POOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("4 and 3, always", _FIXED | {"prefill_replicas": 4, "replicas": 3}),
    ("3 and 2, always", _FIXED | {"prefill_replicas": 3, "replicas": 2}),
    (
        "prefill 3, decode scaled",
        {"prefill_autoscaler": "none", "prefill_max_replicas": None, "prefill_replicas": 3},
    ),
    (
        "prefill scaled, decode 2",
        {"autoscaler": None, "max_replicas": None, "replicas": 2, "prefill_autoscaler": "keda"},
    ),
    ("each by itself", {}),
    ("each by itself, and one of each crashes", {"failures": "crash@400:prefill0, crash@420:0"}),
)
POOLS_SLO = {"ttft": 1000.0, "tpot": 20.0}

HEAD = """# Autoscaling, cold starts and failures

<!-- Written by benchmarks/autoscaling_page.py; edit that. -->

Replicas are processes on the run's clock: they start stage by stage, share storage with whoever
starts at the same time, serve, drain, sleep, wait in reserve, or fail. An autoscaler looks every
`autoscaler_interval_s` at what was true `autoscaler_scrape_delay_s` ago; bounds, stabilisation
windows and cooldown are applied to what it wants, as Kubernetes does. Policies are `threshold`,
`target_tracking` (the Horizontal Pod Autoscaler's formula), `keda` (a total divided by a target),
`predictive` (a forecast of the request rate: `constant`, `seasonal`, and with
`pip install 'dynosim[forecast]'` `holt_winters` and `arima`) and `scheduled`; one more is one file
in `sim/cluster/autoscalers/`.
"""

TAIL = """
## What is modelled, and what is not

- A replica is paid for from the moment it is asked for until it is gone (`gpu_hours`): starting,
  draining, failed, in reserve or asleep. Whoever shares GPUs between sleeping models pays less.
- A start begins with an empty KV cache. A start that is given up reads its stage to the end.
- With `min_replicas: 0` requests wait at the router for a first replica (`requests_held`).
- With `autoscaler_slo_ttft_ms` a run says when no number of replicas can keep the SLO, because a
  prompt alone on a replica takes longer.
- With `prefill_replicas` each pool has an autoscaler, bounds, windows, a reserve and starts of its
  own (`prefill_autoscaler`, `prefill_max_replicas`, …; what is left out holds for both, and
  `prefill_autoscaler: none` leaves that pool alone). `slo_attainment` is then of TTFT in the
  prefill pool (`autoscaler_slo_ttft_ms`) and of TPOT in the other (`autoscaler_slo_tpot_ms`).
- Of two pools a request needs a replica each: with either its attempt ends, what is on the wire
  between them stops, and blocks kept or taken for it are free at the end of the step in progress.
  A prefill replica drains until its last block has been read. Both pools' starts share the storage.
- KV tiers of a replica that starts again are empty, but for shared storage.
- A crash, a lost GPU or a router's restart breaks connections at once; engines notice at the end of
  the step in progress. What a client does then is the workload's `client_*` options: without
  `client_retries` the request is lost (`rejected_failed`, `rejected_timed_out`). Time lost in
  attempts that failed counts as time at the router.
- `node provisioning` and `image pull` take no time unless given: no figure for them is shipped.
"""


def main() -> None:
    """Prints the page, and draws the figure."""
    intervals = sweep("planner_interval", "autoscaler_interval_s", INTERVALS_S)
    starts = sweep("startup_cliff", "startup_s", STARTS_S)
    spike = read("spike")
    remedies = [(name, run(spike, **change)) for name, change in REMEDIES]
    pools = read_question("examples/disaggregation/scaled_pools.yaml", {})
    split = [(name, run(pools, **change)) for name, change in POOLS]
    print(HEAD)
    print("\n".join(_interval_table(intervals)))
    print("\n".join(_start_table(starts)))
    print("\n".join(_remedy_table(remedies)))
    print("\n".join(_at_once_table(spike)))
    print("\n".join(_pools_table(split)))
    print("![Replicas and time to first token](images/autoscaling.png)")
    print(TAIL)
    draw(intervals, starts, remedies)


def read(name: str) -> Question:
    """Returns an example's question."""
    return read_question(str(EXAMPLES / f"{name}.yaml"), {})


def run(question: Question, **change: Any) -> Simulation:
    """Returns the simulation of an example with some options of its deployment changed."""
    return simulate(replace(question.deployment, **change), build_workload(question.workload))


def sweep(name: str, option: str, values: Sequence[float]) -> list[tuple[float, Metrics]]:
    """Returns the metrics of an example at each value of one option."""
    question = read(name)
    return [(value, run(question, **{option: float(value)}).metrics()) for value in values]


def _p90_s(metrics: Metrics) -> str:
    return f"{metrics['p90_ttft_ms'] / 1e3:,.1f}"


def _interval_table(rows: list[tuple[float, Metrics]]) -> Iterator[str]:
    yield "## How often to look\n"
    yield (
        "Published (NVIDIA DynoSim, planner study): p90 TTFT is flat up to an interval of 10 s and "
        "then grows as\nfast as the interval. Ours: `examples/autoscaling/planner_interval.yaml` "
        "(Qwen3-32B, TP 2, H200; a load that\nrises tenfold; 30 s of start). The published load "
        "is not known, so seconds differ; the shape is what compares.\n"
    )
    yield "| interval (s) | p90 TTFT published (s) | p90 TTFT ours (s) | GPU-hours | starts |"
    yield "|---:|---:|---:|---:|---:|"
    for value, metrics in rows:
        published = PUBLISHED_INTERVALS.get(int(value), "")
        hours = f"{metrics['gpu_hours']:.1f}"
        yield f"| {value} | {published} | {_p90_s(metrics)} | {hours} | {metrics['starts']} |"
    yield ""


def _start_table(rows: list[tuple[float, Metrics]]) -> Iterator[str]:
    yield "## How long a start may take\n"
    yield (
        "Published: the SLO is held up to 180–200 s of start, and at 300 s p90 TTFT is 242 s\n"
        "(Qwen3-32B, TP 2, H200). Ours: `examples/autoscaling/startup_cliff.yaml`. Where the\n"
        "cliff is follows from how fast the load rises and how much room the target leaves; the\n"
        "ramp was chosen so that it falls where the published one does. That there is one, and\n"
        "how deep, is the model's.\n"
    )
    yield "| start (s) | p90 TTFT published (s) | p90 TTFT ours (s) | GPU-hours |"
    yield "|---:|---:|---:|---:|"
    for value, metrics in rows:
        published = PUBLISHED_STARTS.get(int(value), "")
        yield f"| {value} | {published} | {_p90_s(metrics)} | {metrics['gpu_hours']:.1f} |"
    yield ""


def _remedy_table(rows: list[tuple[str, Simulation]]) -> Iterator[str]:
    yield "## A spike: cold, snapshot, asleep, in reserve\n"
    yield (
        "`examples/autoscaling/spike.yaml`: gpt-oss-120b on B200, one replica, sixteen times the\n"
        "load within an instant, up to six replicas, all reading from one NFS. Five restores at\n"
        "once share it, which is why a snapshot helps less than its 15 s alone promise.\n"
    )
    yield (
        "| new replicas | start, mean (s) | p90 TTFT (s) | TTFT within 2 s | GPU-hours | "
        "of these in reserve |"
    )
    yield "|---|---:|---:|---:|---:|---:|"
    for name, simulation in rows:
        metrics = simulation.metrics(SLO)
        yield (
            f"| {name} | {metrics['mean_start_s']:.1f} | {_p90_s(metrics)} | "
            f"{metrics['slo_attainment']:.0%} | {metrics['gpu_hours']:.2f} | "
            f"{metrics['gpu_hours_reserve']:.2f} |"
        )
    yield ""


def _at_once_table(question: Question) -> Iterator[str]:
    yield "## One start, and many at once\n"
    yield (
        "The same replica and NFS: seconds until the last of so many serves "
        "(`dynosim startup … --at-once 8`). Published for one:\n15 s (parallel reads) against "
        "more than two minutes cold.\n"
    )
    counts = (1, 2, 4, 8)
    yield f"| method | {' | '.join(map(str, counts))} |"
    yield "|---|" + "---:|" * len(counts)
    for method in ("cold", "stream", "snapshot"):
        deployment = replace(question.deployment, startup=method)
        engine = resolve_engine(deployment)
        plan = plan_startup(engine, plan_memory(engine), deployment)
        spec = start_spec(deployment, engine, plan)
        ends = [f"{max(start_at_once(spec, count)):.1f}" for count in counts]
        yield f"| {method} | {' | '.join(ends)} |"
    yield ""


def _pools_table(rows: list[tuple[str, Simulation]]) -> Iterator[str]:
    yield "## Two pools, each by itself\n"
    yield (
        "`examples/disaggregation/scaled_pools.yaml`: Llama-3.1-8B on H100, 5 to 45 requests a\n"
        "second and back within a quarter of an hour, prompts of 3,000 and answers of 200 tokens,\n"
        "starts of 30 s; the share of requests with TTFT within 1 s and TPOT within 20 ms.\n"
    )
    yield (
        "| prefill and decode engines | prefill, mean | decode, mean | p90 TTFT (s) | "
        "p90 TPOT (ms) | both kept | GPU-hours |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, simulation in rows:
        metrics = simulation.metrics(POOLS_SLO)
        d, hours = simulation.deployment, metrics["duration"] / 3600.0
        means = {
            prefix: metrics.get(f"{prefix}replicas_mean", getattr(d, f"{prefix}replicas"))
            for prefix in ("prefill_", "")
        }
        paid = metrics.get("gpu_hours", d.num_gpus * hours)
        yield (
            f"| {name} | {means['prefill_']:.2f} | {means['']:.2f} | {_p90_s(metrics)} | "
            f"{metrics['p90_tpot_ms']:.1f} | {metrics['slo_attainment']:.0%} | {paid:.2f} |"
        )
    yield ""


def draw(
    intervals: list[tuple[float, Metrics]],
    starts: list[tuple[float, Metrics]],
    remedies: list[tuple[str, Simulation]],
) -> None:
    """Draws p90 TTFT over interval and start, and the replicas that serve through the spike."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.4))
    for axis, rows, label in zip(
        axes, (intervals, starts), ("decision interval (s)", "start (s)"), strict=False
    ):
        axis.plot([v for v, _ in rows], [m["p90_ttft_ms"] / 1e3 for _, m in rows], marker="o")
        axis.set(xlabel=label, ylabel="p90 TTFT (s)", yscale="log")
        axis.grid(alpha=0.3)
    styles = {"cold start": "-", "snapshot": "--", "warm reserve of 2": ":"}
    for name, simulation in remedies:
        log = simulation.result.scaling
        if log is not None and name in styles:
            times_s, counts = log.counts([State.READY])
            axes[2].step(times_s, counts, where="post", label=name, ls=styles[name], lw=2)
    axes[2].set(xlabel="time (s)", ylabel="replicas that serve", xlim=(100, 300))
    axes[2].legend(fontsize=8)
    axes[2].grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=110)


if __name__ == "__main__":
    main()
