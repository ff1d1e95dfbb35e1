"""Writes docs/routing.md: what routers know, and what each is worth on the same requests.

python benchmarks/routing_page.py conversation_trace.jsonl > docs/routing.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cases import CASES
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics, summarize
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec
from measure import compile_case

Options = Mapping[str, Any]

PUBLISHED: dict[str, tuple[float, float, float, float]] = {
    "round_robin": (340.1, 2182.0, 3020.0, 0.0815),
    "kv_aware": (297.7, 1812.0, 2866.0, 0.2014),
}
"""Mean and p99 TTFT, mean E2EL in ms, reuse that dynamo.replay 1.4.2 finds (measured 2026-07)."""

ROUTERS: tuple[Options, ...] = (
    {"router": "round_robin"},
    {"router": "random"},
    {"router": "least_outstanding"},
    {"router": "power_of_two"},
    {"router": "session_affinity"},
    {"router": "prefix_hash", "router_prefix_blocks": 2},
    {"router": "prefix_hash", "router_prefix_blocks": 2, "router_load_bound": 2.0},
    {"router": "kv_aware"},
    {"router": "weighted_score"},
    {"router": "cost_aware"},
    {"router": "cost_aware", "router_predicts": "e2el"},
)
KV_AWARE: tuple[Options, ...] = (
    {},
    {"router_overlap_weight": 0.0},
    {"router_overlap_weight": 2.0},
    {"router_prefill_load_scale": 2.0},
    {"router_temperature": 0.1},
    {"router_temperature": 0.5},
    {"router_event_lag_s": 0.5},
    {"router_event_lag_s": 5.0},
    {"router_replicas": 2},
    {"router_replicas": 4},
)
SKEWED: tuple[Options, ...] = (
    {"router": "round_robin"},
    {"router": "least_outstanding"},
    {"router": "prefix_hash", "router_load_bound": float("inf")},
    {"router": "prefix_hash", "router_load_bound": 2.0},
    {"router": "prefix_hash"},
    {"router": "kv_aware"},
)
ADMISSION: tuple[Options, ...] = (
    {},
    {"router_max_outstanding": 64},
    {"router_max_outstanding": 64, "router_queue_policy": "lcfs"},
    {"router_max_outstanding": 64, "router_queue_policy": "wspt"},
    {"router_max_outstanding": 64, "router_overload": "shed"},
    {"router_max_waiting": 1, "router_overload": "shed"},
    {"router_max_kv_use": 0.5, "router_overload": "shed"},
    {"router_ttft_deadline_ms": 1000.0},
)
TTFT_SLO_MS = 1000.0


def peer_case(trace: str) -> tuple[ClusterSpec, Workload]:
    """Returns the conversation trace before 8 workers, under the peer's timing law."""
    case = CASES["conversation"](trace)
    return compile_case(case, peer_law=True), case[1]


def measured(spec: ClusterSpec, load: Workload, options: Options) -> Metrics:
    """Returns the metrics of a run behind a router."""
    return summarize(run_cluster(replace(spec, routing=RouterOptions(**options)), load))


def published(spec: ClusterSpec, load: Workload) -> Iterator[str]:
    """Yields the comparison with dynamo.replay, and the change that a KV-aware router makes."""
    yield "| | mean TTFT, ms | p99 TTFT, ms | mean E2EL, ms | reuse |"
    yield "|---|---:|---:|---:|---:|"
    ours = {}
    for router, figures in PUBLISHED.items():
        m = measured(spec, load, {"router": router})
        names = ("mean_ttft_ms", "p99_ttft_ms", "mean_e2el_ms", "prefix_hit_rate")
        ours[router] = [m[name] for name in names]
        yield f"| {router}, dynamo.replay 1.4.2 | {_row(figures)} |"
        yield f"| {router}, dynosim | {_row(ours[router])} |"
    for who, found in (("dynamo.replay", PUBLISHED), ("dynosim", ours)):
        ratios = [a / b for a, b in zip(found["kv_aware"], found["round_robin"], strict=True)]
        yield f"| kv_aware ÷ round_robin, {who} | {' | '.join(f'{r:.3f}' for r in ratios)} |"


def _row(figures: Sequence[float]) -> str:
    *times, reuse = figures
    return " | ".join([*(f"{t:,.1f}" for t in times), f"{reuse:.4f}"])


def compared(spec: ClusterSpec, load: Workload, every: Sequence[Options]) -> Iterator[str]:
    """Yields a table with a row for each choice of options."""
    yield "| | mean TTFT, ms | p99 TTFT, ms | mean ITL, ms | reuse | busiest ÷ mean |"
    yield "|---|---:|---:|---:|---:|---:|"
    for options in every:
        result = run_cluster(replace(spec, routing=RouterOptions(**options)), load)
        m = summarize(result)
        tokens = np.bincount(result.replica, load.input_tokens, minlength=spec.replicas)
        yield (
            f"| {_named(options)} | {m['mean_ttft_ms']:,.0f} | {m['p99_ttft_ms']:,.0f} "
            f"| {m['mean_itl_ms']:.1f} | {m['prefix_hit_rate']:.3f} "
            f"| {tokens.max() / tokens.mean():.2f} |"
        )


def _named(options: Options) -> str:
    """Returns options as they are written, without their common beginning."""
    rest = [f"{k.removeprefix('router_')} {v}" for k, v in options.items() if k != "router"]
    return ", ".join([*([options["router"]] if "router" in options else []), *rest]) or "defaults"


def skewed() -> Workload:
    """Returns prompts behind 64 shared prefixes of 4,096 tokens, a few of which are most asked."""
    spec = WorkloadSpec(
        random_input_len=256,
        random_output_len=128,
        random_prefix_len=4096,
        num_prefixes=64,
        prefix_zipf=1.3,
        request_rate=30.0,
        num_prompts=6000,
    )
    return build_workload(spec)


def on_skewed_prefixes() -> Iterator[str]:
    """Yields how routers do where one prefix is half of the load."""
    yield "| | mean TTFT, ms | p99 TTFT, ms | mean TPOT, ms | reuse | busiest ÷ mean |"
    yield "|---|---:|---:|---:|---:|---:|"
    load = skewed()
    for options in SKEWED:
        deployment = Deployment(
            model="meta-llama/Llama-3.1-8B-Instruct", gpu="l40s", replicas=8, **options
        )
        run = simulate(deployment, load)
        m = run.metrics()
        requests = np.bincount(run.result.replica, minlength=8)
        yield (
            f"| {_named(options)} | {m['mean_ttft_ms']:,.0f} | {m['p99_ttft_ms']:,.0f} "
            f"| {m['mean_tpot_ms']:.1f} | {m['prefix_hit_rate']:.3f} "
            f"| {requests.max() / requests.mean():.2f} |"
        )


def with_admission() -> Iterator[str]:
    """Yields what thresholds do to a load of one and a half times what is served."""
    yield (
        f"| | served | shed | mean TTFT, ms | of it at the router | p99 TPOT, ms "
        f"| TTFT within {TTFT_SLO_MS / 1e3:g} s, of all |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|"
    load = build_workload(
        WorkloadSpec(
            random_input_len=1024,
            random_input_cv=1.0,
            random_output_len=256,
            random_output_cv=1.0,
            request_rate=60.0,
            num_prompts=6000,
        )
    )
    for options in ADMISSION:
        deployment = Deployment(
            model="meta-llama/Llama-3.1-8B-Instruct",
            gpu="h100_sxm",
            replicas=2,
            router="least_outstanding",
            **options,
        )
        m = simulate(deployment, load).metrics({"ttft": TTFT_SLO_MS})
        yield (
            f"| {_named(options)} | {m['completed']:,} | {m['rejected']:,} "
            f"| {m['mean_ttft_ms']:,.0f} | {m['mean_router_ms']:,.0f} | {m['p99_tpot_ms']:.1f} "
            f"| {m['slo_attainment']:.1%} |"
        )


def page(trace: str) -> str:
    """Returns the page: ``routing_page.md`` with its tables filled in."""
    spec, load = peer_case(trace)
    closed = replace(load, arrival_s=np.zeros(len(load)), max_concurrency=256)
    tables = {
        "published": published(spec, load),
        "in_flight": compared(spec, closed, ({"router": "round_robin"}, {"router": "kv_aware"})),
        "routers": compared(spec, load, ROUTERS),
        "kv_aware": compared(spec, load, [{"router": "kv_aware"} | dict(o) for o in KV_AWARE]),
        "skewed": on_skewed_prefixes(),
        "admission": with_admission(),
    }
    text = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return text.format(**{name: "\n".join(lines) for name, lines in tables.items()})


def main() -> None:
    """Prints the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("conversation", help="Mooncake's conversation trace")
    print(page(parser.parse_args().conversation), end="")


if __name__ == "__main__":
    main()
