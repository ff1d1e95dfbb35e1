"""Writes docs/published.md: experiments that others have published, beside ours.

    python benchmarks/published_page.py conversation.jsonl synthetic.jsonl > docs/published.md

The traces are Mooncake's. Each section is a function that yields Markdown; it takes a
minute and a half of CPU in all.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

import autoscaling_page
import routing_page
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.startup.plan import plan_startup
from dynosim.sim.cluster.cluster import run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.scaling.at_once import start_at_once
from dynosim.sim.cluster.scaling.planning import start_spec
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics, summarize
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec

HEAD = """# Published and ours

<!-- Written by benchmarks/published_page.py; edit that. -->

Experiments with the layers above an engine that others have published, on the nearest set-up that
can be told from what they say. Where a load is not given, seconds cannot agree; kind and direction
can, and where they do not the reason is named. Kernel times and whole engines are compared with
measurements elsewhere ([accuracy](accuracy.md), [claims](claims.md)).
"""


@dataclass(frozen=True)
class Finding:
    """One line of the summary."""

    experiment: str
    published: str
    ours: str


def goodput_rate(deployment: Deployment, ttft_ms: float, tpot_ms: float) -> float:
    """Returns the most requests/s of which nine in ten keep both limits, to 2 %."""
    low, high = 0.0, 64.0
    while high - low > 0.02 * high:
        rate = 0.5 * (low + high)
        load = build_workload(
            WorkloadSpec(
                random_input_len=3000,
                random_output_len=150,
                random_range_ratio=0.3,
                request_rate=rate,
                num_prompts=1500,
            )
        )
        metrics = simulate(deployment, load).metrics({"ttft": ttft_ms, "tpot": tpot_ms})
        low, high = (rate, high) if metrics["slo_attainment"] >= 0.9 else (low, rate)
    return low


LIMITS_MS = ((500.0, 20.0), (500.0, 12.0), (500.0, 9.0))
FOUR = Deployment(
    model="meta-llama/Llama-3.1-8B-Instruct",
    gpu="h100_sxm",
    backend_version="0.19.0",
    router="least_outstanding",
    replicas=4,
)
PROMPTS_FIRST = "prompts first (sglang)"
SMALL_CHUNKS = "chunks of 512"
ONE_KIND: Mapping[str, Deployment] = {
    PROMPTS_FIRST: replace(FOUR, backend="sglang", backend_version=None),
    "chunks of 8,192": FOUR,
    SMALL_CHUNKS: replace(FOUR, max_num_batched_tokens=512),
}
TWO_POOLS: Mapping[str, Deployment] = {
    "3 + 1": replace(FOUR, prefill_replicas=3, replicas=1),
    "2 + 2": replace(FOUR, prefill_replicas=2, replicas=2),
    "1 + 3": replace(FOUR, prefill_replicas=1, replicas=3),
}


def disaggregation() -> tuple[list[Finding], Iterator[str]]:
    """Returns what two pools gain, over engines that split prompts and over ones that do not."""
    every = {**ONE_KIND, **TWO_POOLS}
    rates = {
        limits: {name: goodput_rate(d, *limits) for name, d in every.items()}
        for limits in LIMITS_MS
    }

    def gains(over: str) -> str:
        best = [(max(row[name] for name in TWO_POOLS), row[over]) for row in rates.values()]
        return _span([two / one for two, one in best], "×")

    found = [
        Finding(
            "Two pools: goodput over engines that stop answers for prompts",
            "2 to 4 × (DistServe, OSDI 2024)",
            gains(PROMPTS_FIRST),
        ),
        Finding(
            "the same over engines with small chunks",
            "none in throughput (vLLM's documentation)",
            gains(SMALL_CHUNKS),
        ),
    ]

    def table() -> Iterator[str]:
        yield "## Two pools\n"
        yield (
            "Llama-3.1-8B on four H100, prompts of 3,000 and answers of 150 tokens (± 30 %): the "
            "highest\nrate in requests/s at which nine in ten keep both limits, with one kind of "
            "engine and with prefill\n+ decode engines. DistServe's vLLM computed prompts before "
            "all answers, as SGLang's scheduler does\nstill. Engines that mix small chunks of "
            "prompts with answers keep the same limits without a second\npool: what is published "
            "depends on what it is compared with.\nDistServe also gave each pool "
            "a parallelism of its own, which is not done here.\n"
        )
        yield "| TTFT, TPOT (ms) | " + " | ".join(every) + " |"
        yield "|---|" + "---:|" * len(every)
        for limits, row in rates.items():
            cells = " | ".join(f"{rate:.1f}" for rate in row.values())
            yield f"| {limits[0]:g}, {limits[1]:g} | {cells} |"
        yield ""

    return found, table()


def _span(values: list[float], unit: str) -> str:
    return f"{min(values):.1f} to {max(values):.1f} {unit}"


HOST_GIB = (0.0, 256.0, 1024.0)
TIER_ROUTERS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("round_robin", {"router": "round_robin"}),
    ("kv_aware, blind to tiers", {"router": "kv_aware", "router_host_weight": 0.0}),
    ("kv_aware", {"router": "kv_aware"}),
)


@cache
def replayed(trace: str, rate_scale: float) -> Workload:
    """Returns a trace's requests at another pace."""
    return build_workload(WorkloadSpec(trace=trace, rate_scale=rate_scale))


def with_host_memory(trace: str, rate_scale: float, gpu: str, **options: Any) -> Metrics:
    """Returns the metrics of eight replicas of two GPUs."""
    deployment = Deployment(
        model="Qwen/Qwen3-32B",
        gpu=gpu,
        tensor_parallel_size=2,
        replicas=8,
        backend_version="0.19.0",
        block_size=512,
        **options,
    )
    return simulate(deployment, replayed(trace, rate_scale)).metrics()


def kv_tiers(conversation: str, synthetic: str) -> tuple[list[Finding], Iterator[str]]:
    """Returns what host memory is worth to each router, on two traces and two sizes of GPU."""
    cases = {
        "conversation, H200": (conversation, 1.0, "h200_sxm"),
        "conversation, H100": (conversation, 0.7, "h100_sxm"),
        "synthetic, H200": (synthetic, 1.0, "h200_sxm"),
        "synthetic, H100": (synthetic, 1.0, "h100_sxm"),
    }
    rows = {
        (case, name): [with_host_memory(*where, kv_host_gib=gib, **options) for gib in HOST_GIB]
        for case, where in cases.items()
        for name, options in TIER_ROUTERS
    }
    cuts = [
        1.0 - metrics["mean_ttft_ms"] / row[0]["mean_ttft_ms"]
        for (case, name), row in rows.items()
        if name == "kv_aware" and case.startswith("conversation")
        for metrics in row[1:]
    ]
    found = [
        Finding(
            "A host tier: mean TTFT",
            "−8.5 to −19.3 % (NVIDIA Dynamo; trace and pool not given)",
            f"−{min(cuts):.1%} to −{max(cuts):.1%}".replace("%", " %"),
        )
    ]

    def table() -> Iterator[str]:
        yield "## KV tiers below the GPU\n"
        yield (
            "Qwen3-32B on eight replicas of two GPUs, Mooncake's traces (the conversation trace at "
            "0.7 of its\npace on H100), vLLM with blocks of 512 tokens: mean TTFT, its change with "
            "host memory of a\nreplica, and the share of prompt tokens found with 1 TiB. What "
            "decides is whether requests come\nback to the replica that has their prefix: with "
            "round-robin one in eight does, and a router that\nsees GPUs only forgets where what "
            "they evicted lies. Dynamo's router counts a block in host\nmemory three quarters, and "
            "so does ours; without that, gains stay at the low end of what is\npublished.\n"
        )
        sizes = " | ".join(f"{gib:,.0f} GiB" for gib in HOST_GIB[1:])
        yield f"| trace, GPU | router | none: TTFT (ms) | {sizes} | found, before | with 1 TiB |"
        yield "|---|---|---:|" + "---:|" * len(HOST_GIB[1:]) + "---:|---:|"
        for (case, name), row in rows.items():
            base = row[0]["mean_ttft_ms"]
            changes = " | ".join(
                f"{m['mean_ttft_ms'] / base - 1.0:+.1%}".replace("-", "−") for m in row[1:]
            )
            found_share = f"{row[0]['prefix_hit_rate']:.1%} | {row[-1]['prefix_hit_rate']:.1%}"
            yield f"| {case} | {name} | {base:,.0f} | {changes} | {found_share} |"
        yield ""

    return found, table()


PROMPTS = (1024, 65536)
MEASURED_TTFT_MS = {"computed": (78.0, 15_200.0), "GPU": (42.0, 111.0), "host": (57.0, 272.0)}
"""Qwen3-Coder-30B-A3B on one H20, vLLM 0.18.1, eager (agentic-kvc, v2/README, 2026-05-30)."""


def tier_ttft_ms(tokens: int) -> dict[str, float]:
    """Returns TTFT of a prompt alone on a replica: computed, found on the GPU, and in the host."""
    deployment = Deployment(
        model="Qwen/Qwen3-Coder-30B-A3B-Instruct",
        gpu="h20",
        backend_version="0.19.0",
        enforce_eager=True,
        max_model_len=131072,
    )
    blocks = -(-tokens // 16)
    # The second prompt evicts the first where there is room for little more than one of them.
    scarce = replace(
        deployment, kv_host_gib=64.0, num_gpu_blocks_override=blocks + 8, max_model_len=tokens + 16
    )
    first, again = _sequence(tokens, [0, 0]), _sequence(tokens, [0, 1, 0])
    found = simulate(deployment, first).result
    host = simulate(scarce, again).result
    ttft_ms = (found.first_token_s - found.sent_s) * 1e3
    return {
        "computed": float(ttft_ms[0]),
        "GPU": float(ttft_ms[1]),
        "host": float((host.first_token_s - host.sent_s)[2] * 1e3),
    }


def _sequence(tokens: int, prompts: list[int]) -> Workload:
    """Returns prompts, told apart by number, a minute from each other."""
    blocks = tokens // 16
    ids = [number * blocks + np.arange(blocks) for number in prompts]
    n = len(prompts)
    return Workload(
        name="one by one",
        arrival_s=60.0 * np.arange(n),
        input_tokens=np.full(n, tokens),
        output_tokens=np.ones(n, dtype=np.int64),
        prefix_ids=np.concatenate(ids).astype(np.int64),
        prefix_offsets=blocks * np.arange(n + 1),
        prefix_block_tokens=16,
    ).check()


def where_a_prefix_lies() -> tuple[list[Finding], Iterator[str]]:
    """Returns TTFT by where a prompt's KV is found."""
    ours = [tier_ttft_ms(tokens) for tokens in PROMPTS]
    measured, simulated = MEASURED_TTFT_MS, ours[-1]
    found = [
        Finding(
            "64k tokens computed ÷ loaded from host memory",
            f"{measured['computed'][1] / measured['host'][1]:.0f} ×",
            f"{simulated['computed'] / simulated['host']:.0f} ×",
        )
    ]

    def table() -> Iterator[str]:
        yield "## Where a prefix lies\n"
        yield (
            "Qwen3-Coder-30B-A3B on one H20, vLLM without CUDA graphs, one prompt at a time: TTFT "
            "in ms,\nmeasured (agentic-kvc, 2026-05-30, vLLM 0.18.1) and simulated. Kernels of "
            "this GPU are not\namong the measured ones.\n"
        )
        sizes = [f"{tokens // 1024}k: {who}" for tokens in PROMPTS for who in ("measured", "ours")]
        yield f"| KV | {' | '.join(sizes)} |"
        yield "|---|" + "---:|" * len(sizes)
        for name, published in measured.items():
            cells = [
                f"{value:,.0f}"
                for figure, run in zip(published, ours, strict=True)
                for value in (figure, run[name])
            ]
            yield f"| {name} | {' | '.join(cells)} |"
        yield ""

    return found, table()


def routing(conversation: str) -> tuple[list[Finding], Iterator[str]]:
    """Returns what KV-aware routing changes, like for like and in a closed loop."""
    spec, load = routing_page.peer_case(conversation)
    closed = replace(load, arrival_s=np.zeros(len(load)), max_concurrency=256)
    runs = {
        (loop, router): summarize(
            run_cluster(replace(spec, routing=RouterOptions(router=router)), requests)
        )
        for loop, requests in (("open", load), ("closed", closed))
        for router in ("round_robin", "kv_aware")
    }

    def ratio(loop: str, name: str) -> float:
        return runs[loop, "kv_aware"][name] / runs[loop, "round_robin"][name]

    peer = routing_page.PUBLISHED
    theirs = [a / b for a, b in zip(peer["kv_aware"], peer["round_robin"], strict=True)]
    found = [
        Finding(
            "KV-aware ÷ round-robin, conversation trace, one timing law: mean TTFT, reuse",
            f"{theirs[0]:.2f}, {theirs[3]:.2f} (dynamo.replay 1.4.2)",
            f"{ratio('open', 'mean_ttft_ms'):.2f}, {ratio('open', 'prefix_hit_rate'):.2f}",
        ),
        Finding(
            "the same with 256 in flight: mean TTFT",
            "0.27 (MiniMax-M2.5 on B200, another trace)",
            f"{ratio('closed', 'mean_ttft_ms'):.2f}",
        ),
    ]

    def table() -> Iterator[str]:
        yield "## KV-aware routing\n"
        yield "| | mean TTFT (ms) | p99 TTFT (ms) | reuse |"
        yield "|---|---:|---:|---:|"
        for router, (mean, p99, _, reuse) in peer.items():
            yield f"| {router}, dynamo.replay | {mean:,.1f} | {p99:,.1f} | {reuse:.4f} |"
            yield f"| {router}, dynosim | {_routed(runs['open', router])} |"
        yield "| round_robin, 256 in flight, MiniMax-M2.5 | 1,780 | | 0.38 |"
        yield f"| round_robin, 256 in flight, dynosim | {_routed(runs['closed', 'round_robin'])} |"
        yield "| kv_aware, 256 in flight, MiniMax-M2.5 | 480 | | 0.44–0.45 |"
        yield f"| kv_aware, 256 in flight, dynosim | {_routed(runs['closed', 'kv_aware'])} |"
        yield "\nMore of both in [routing](routing.md).\n"

    return found, table()


def _routed(metrics: Metrics) -> str:
    times = f"{metrics['mean_ttft_ms']:,.1f} | {metrics['p99_ttft_ms']:,.1f}"
    return f"{times} | {metrics['prefix_hit_rate']:.4f}"


def planner() -> list[Finding]:
    """Returns how often to look, and how long a start may take."""
    intervals = dict(
        autoscaling_page.sweep("planner_interval", "autoscaler_interval_s", (5, 60, 300))
    )
    starts = dict(autoscaling_page.sweep("startup_cliff", "startup_s", (120, 180, 300)))
    return [
        Finding(
            "Planner interval 5, 60, 300 s: p90 TTFT",
            "3.1–3.6, 47, 249 s (NVIDIA DynoSim)",
            _p90s(intervals),
        ),
        Finding(
            "Start of 120, 180, 300 s: p90 TTFT",
            "SLO held, SLO held, 242 s (NVIDIA DynoSim)",
            _p90s(starts),
        ),
    ]


def _p90s(runs: Mapping[float, Metrics]) -> str:
    return ", ".join(f"{m['p90_ttft_ms'] / 1e3:,.1f}" for m in runs.values()) + " s"


SNAPSHOTS = {
    "Qwen/Qwen3-0.6B": ("b200_sxm", 1),
    "Qwen/Qwen3-8B": ("b200_sxm", 1),
    "Qwen/Qwen3-32B": ("b200_sxm", 1),
    "openai/gpt-oss-120b": ("b200_sxm", 1),
    "meta-llama/Llama-3.3-70B-Instruct": ("b200_sxm", 2),
}


def snapshots() -> tuple[list[Finding], Iterator[str]]:
    """Returns starts from snapshots beside cold ones, alone and eight at once."""
    rows = {}
    for model, (gpu, tp) in SNAPSHOTS.items():
        plain = Deployment(
            model=model,
            gpu=gpu,
            tensor_parallel_size=tp,
            startup_storage="nfs",
            max_model_len=16384,
        )
        rows[model] = [
            start_s(replace(plain, startup=method), count)
            for method in ("cold", "snapshot")
            for count in (1, 8)
        ]
    alone = [row[0] / row[2] for row in rows.values()]
    spike = autoscaling_page.read("spike")
    waits = {
        name: autoscaling_page.run(spike, **change).metrics()
        for name, change in (
            ("cold", {}),
            ("snapshot", {"startup": "snapshot"}),
            ("reserve of 2", {"warm_replicas": 2}),
        )
    }
    found = [
        Finding(
            "One restore from NFS on B200",
            "3.6 to 42.7 s (NVIDIA Dynamo snapshot)",
            _span([row[2] for row in rows.values()], "s"),
        ),
        Finding("cold ÷ restore", "8 to 36 ×", _span(alone, "×")),
        Finding(
            "A spike met cold, from snapshots, by a reserve of two: p90 TTFT",
            "in this order",
            _p90s(waits),  # type: ignore[arg-type]
        ),
    ]

    def table() -> Iterator[str]:
        yield "## Snapshots: one restore, and eight at once\n"
        yield (
            "Seconds until one replica, or the last of eight, serves; all read from one NFS, which "
            "eight\nrestores at once share. The published models are not named but for "
            "gpt-oss-120b (15 s) and\nQwen3-0.6B.\n"
        )
        names = ("cold, 1", "cold, 8", "snapshot, 1", "snapshot, 8", "cold ÷ snapshot, 1", "8")
        yield f"| model on B200 | {' | '.join(names)} |"
        yield "|---|---:|---:|---:|---:|---:|---:|"
        for model, row in rows.items():
            cells = " | ".join(f"{seconds:.1f}" for seconds in row)
            ratios = f"{row[0] / row[2]:.1f} | {row[1] / row[3]:.1f}"
            name = f"{model}, TP {SNAPSHOTS[model][1]}"
            yield f"| {name} | {cells} | {ratios} |"
        yield ""

    return found, table()


def start_s(deployment: Deployment, count: int) -> float:
    """Returns when the last of so many replicas that start at once serves."""
    engine = resolve_engine(deployment)
    plan = plan_startup(engine, plan_memory(engine), deployment)
    return max(start_at_once(start_spec(deployment, engine, plan), count))


def page(conversation: str, synthetic: str) -> Iterator[str]:
    """Yields the page: a summary, then a section an experiment."""
    sections = [
        snapshots(),
        disaggregation(),
        kv_tiers(conversation, synthetic),
        where_a_prefix_lies(),
        routing(conversation),
    ]
    yield HEAD
    yield "| experiment | published | ours |"
    yield "|---|---|---|"
    for finding in [*planner(), *(line for found, _ in sections for line in found)]:
        yield f"| {finding.experiment} | {finding.published} | {finding.ours} |"
    yield (
        "\nPlanner interval, start-up cliff and the spike, with the loads behind them: "
        "[autoscaling](autoscaling.md).\n"
    )
    for _, table in sections:
        yield from table


def main() -> None:
    """Prints the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("conversation", help="Mooncake's conversation trace")
    parser.add_argument("synthetic", help="Mooncake's synthetic trace")
    given = parser.parse_args()
    print("\n".join(page(given.conversation, given.synthetic)))


if __name__ == "__main__":
    main()
