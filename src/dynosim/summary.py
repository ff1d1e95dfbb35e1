"""One screen about a simulation: what was asked, how it went, and what the answer rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dynosim.accuracy.expectation import Expectation
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.sim.bottleneck.report import Bottleneck
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics
from dynosim.sim.simulate import Simulation
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.terminal import table

if TYPE_CHECKING:
    from dynosim.sim.bottleneck.what_if import Widening
    from dynosim.sim.replicates import Estimate

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
LATENCIES = (
    ("TTFT", "ttft"),
    ("  network", "network"),
    ("  at server", "server_ttft"),
    ("  frontend", "frontend"),
    ("  router", "router"),
    ("  queue", "queue"),
    ("  KV load", "kv_load"),
    ("  prefill", "prefill"),
    ("  transfer", "transfer"),
    ("TPOT", "tpot"),
    ("ITL", "itl"),
    ("E2EL", "e2el"),
    ("  at server", "server_e2el"),
    ("At client", "client_wait"),
    ("User TTFT", "user_ttft"),
    ("User E2EL", "user_e2el"),
)


def summary(
    simulation: Simulation,
    metrics: Metrics,
    spec: WorkloadSpec,
    goodput_ms: Mapping[str, float],
    expectation: Expectation,
    spread: Mapping[str, Estimate],
    bound: Bottleneck | None,
) -> str:
    """Returns the text that ``dynosim simulate`` prints; the same run gives the same bytes."""
    rows = [("Throughput", _throughput(metrics)), ("Per user, GPU", _shares(metrics))]
    if goodput_ms:
        rows.append(("Goodput", _goodput(metrics, goodput_ms)))
    rows += [
        ("KV cache", _kv_cache(simulation, metrics)),
        ("Engine", _engine(metrics)),
        *_wasted(metrics),
        *_tiers(simulation, metrics),
        *_bound_by(bound),
        *_hand_overs(simulation, metrics),
        *_speculation(simulation, metrics),
        ("Cost", _cost(metrics)),
        *_scaling(simulation, metrics),
        *_expected(metrics, expectation),
        *_over_seeds(spread),
        *_foundations(simulation),
        *_calibration(expectation),
    ]
    facts = [f"{name:<14} {text}" for name, text in rows]
    return "\n".join([*_head(simulation, metrics, spec), "", _latency_table(metrics), "", *facts])


def parallel_shape(args: EngineArgs) -> str:
    """Returns how one replica is cut, as in ``TP 2 × PP 2 × DP 4``."""
    shape = f"TP {args.tensor_parallel_size}"
    if args.pipeline_parallel_size > 1:
        shape += f" × PP {args.pipeline_parallel_size}"
    if args.data_parallel_size > 1:
        shape += f" × DP {args.data_parallel_size}"
    return shape


def _head(simulation: Simulation, metrics: Metrics, spec: WorkloadSpec) -> Iterator[str]:
    deployment, engine = simulation.deployment, simulation.engine
    backend = f"{engine.backend.name} {engine.backend.version}"
    yield f"{engine.model.name} on {_gpus(simulation)}, {backend}"
    shape = _replicas(deployment, " replica(s)", parallel_shape(engine.args))
    pool = deployment.prefill_pool
    if simulation.prefill is not None and pool is not None:
        prefill = _replicas(pool, "", parallel_shape(simulation.prefill.engine.args))
        shape = f"prefill {prefill}, decode {shape}"
    yield f"{shape}, router {deployment.router}"
    duration = shown(metrics["duration"], ",.1f")
    yield (
        f"{metrics['completed']:,} requests{_unserved(metrics)} in {duration} s; "
        f"{loop(simulation, spec)}"
    )


def _replicas(pool: Deployment, unit: str, shape: str) -> str:
    """Returns how many replicas of which shape a pool has, and who decides that."""
    if pool.autoscaler is None:
        return f"{pool.replicas}{unit} × {shape}"
    return f"{pool.min_replicas} to {pool.max_replicas}{unit} × {shape}, {pool.autoscaler}"


def _unserved(metrics: Metrics) -> str:
    """Returns how many requests were too long, shed or given up by their clients, in words."""
    lost = metrics["rejected_failed"] + metrics["rejected_timed_out"]
    refused = metrics["failed"] - metrics["rejected"]
    counts = {"refused": refused, "shed": metrics["rejected"] - lost, "lost": lost}
    counts["cancelled"] = metrics.get("cancelled", 0)
    return "".join(f", {count:,} {what}" for what, count in counts.items() if count)


def _wasted(metrics: Metrics) -> Iterator[tuple[str, str]]:
    """Yields what was generated for attempts that came to nothing, if anything was."""
    if wasted := metrics.get("wasted_output_tokens", 0):
        share = wasted / (wasted + metrics["total_output_tokens"])
        yield "Wasted", f"{wasted:,} output tokens, {share:.1%} of all that were generated"


def _gpus(simulation: Simulation) -> str:
    """Returns how many GPUs of which kind there are."""
    deployment, gpu = simulation.deployment, simulation.engine.gpu
    pools = [deployment, deployment.prefill_pool]
    is_scaled = any(pool is not None and pool.autoscaler is not None for pool in pools)
    at_most = "up to " if is_scaled else ""
    if simulation.prefill is None or simulation.prefill.engine.gpu == gpu:
        return f"{at_most}{deployment.num_gpus} × {gpu.name}"
    other, own = simulation.prefill.engine.gpu, deployment.num_prefill_gpus
    return f"{at_most}{own} × {other.name} + {deployment.num_gpus - own} × {gpu.name}"


def loop(simulation: Simulation, spec: WorkloadSpec) -> str:
    """Returns how requests arrive, open or closed loop, in words."""
    own = simulation.result.workload.client.client_max_in_flight
    return _arrivals(simulation, spec) + (f", {own:,} in flight a client" if own else "")


def _arrivals(simulation: Simulation, spec: WorkloadSpec) -> str:
    workload = simulation.result.workload
    if workload.turns is not None:
        cap = f", at most {workload.max_concurrency:,}" if workload.max_concurrency else ""
        return f"{int(workload.turns.is_first.sum()):,} sessions, a turn after the other{cap}"
    if workload.max_concurrency is not None:
        return f"closed loop, at most {workload.max_concurrency:,} in flight"
    if spec.trace is not None:
        return f"open loop, arrivals of {workload.name}"
    if spec.request_rates is not None:
        return f"open loop, {spec.request_rates} (s:requests/s), burstiness {spec.burstiness:g}"
    if spec.request_rate is None or math.isinf(spec.request_rate):
        return "open loop, all at once"
    return f"open loop, {spec.request_rate:g} requests/s, burstiness {spec.burstiness:g}"


def _latency_table(metrics: Metrics) -> str:
    rows = [
        [label, *(shown(metrics[f"{s}_{name}_ms"], ",.1f") for s in STATISTICS)]
        for label, name in LATENCIES
        if f"mean_{name}_ms" in metrics
        # Mostly nobody waits at a router.
        and (name != "router" or metrics["p99_router_ms"] > 0.0)
    ]
    return table(["Latency (ms)", *STATISTICS], rows)


def shown(number: float, form: str) -> str:
    """Returns a figure in Python's format ``form``, or a dash where there is none."""
    return "–" if math.isnan(number) else format(number, form)


def _throughput(metrics: Metrics) -> str:
    return (
        f"{shown(metrics['request_throughput'], ',.2f')} requests/s, "
        f"{shown(metrics['output_throughput'], ',.1f')} output tok/s, "
        f"{shown(metrics['total_token_throughput'], ',.1f')} total tok/s"
    )


def _shares(metrics: Metrics) -> str:
    return (
        f"{shown(metrics['output_tok_s_per_user'], ',.1f')} output tok/s/user, "
        f"{shown(metrics['output_tok_s_per_gpu'], ',.1f')} output tok/s/GPU, "
        f"{shown(metrics['total_tok_s_per_gpu'], ',.1f')} total tok/s/GPU"
    )


def _goodput(metrics: Metrics, goodput_ms: Mapping[str, float]) -> str:
    limits = ", ".join(f"{kind} ≤ {limit:g} ms" for kind, limit in goodput_ms.items())
    return (
        f"{shown(metrics['request_goodput'], ',.2f')} requests/s, "
        f"{metrics['slo_attainment']:.1%} of requests with {limits}"
    )


def _kv_cache(simulation: Simulation, metrics: Metrics) -> str:
    return (
        f"{simulation.memory.kv_cache_tokens:,} tokens a replica, "
        f"mean use {shown(metrics['kv_usage_mean'], '.1%')}, "
        f"peak {shown(metrics['kv_usage_peak'], '.1%')}"
    )


def _engine(metrics: Metrics) -> str:
    return (
        f"{metrics['preemptions']:,} preemptions, "
        f"prefix hit rate {metrics['prefix_hit_rate']:.1%}, busy {metrics['busy_share']:.1%}"
    )


def _tiers(simulation: Simulation, metrics: Metrics) -> Iterator[tuple[str, str]]:
    hand_overs = simulation.result.hand_overs
    theirs = None if hand_overs is None else hand_overs.tiers
    for name, own, prefix in (
        ("KV tiers", simulation.result.tiers, ""),
        ("Prefill tiers", theirs, "prefill_"),
    ):
        if own is not None:
            rates = [(t.name, metrics[f"{prefix}kv_{t.name}_hit_rate"]) for t in own.tiers]
            hits = ", ".join(f"{tier} {rate:.1%}" for tier, rate in rates)
            yield (
                name,
                f"{hits} of prompt tokens loaded, {metrics[f'{prefix}kv_loads']:,} loads "
                f"of {metrics[f'{prefix}mean_kv_load_ms']:,.1f} ms",
            )


_LEAST_SHARE = 0.005


def _bound_by(bound: Bottleneck | None) -> Iterator[tuple[str, str]]:
    """Yields what requests and steps waited for, largest share first."""
    if bound is not None:
        yield "Bound by", _percent(bound.bound_by)
        yield "GPU steps", _percent(bound.steps)
    if bound is not None and bound.prefill is not None:
        yield "Prefill bound", _percent(bound.prefill.shares)
        yield "Prefill steps", _percent(bound.prefill.step_shares)


def _percent(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {s:.0%}" for name, s in shares.items() if s >= _LEAST_SHARE)


def widenings(found: list[Widening]) -> str:
    """Returns the table of ``--what-if``: what each resource, made wider, would change."""
    header = ["What if", "", "capacity", "mean TTFT", "p99 TTFT", "mean TPOT", "mean E2EL"]
    rows = [
        [one.resource, one.change, *(_signed(x) for x in (one.capacity, *one.changes.values()))]
        for one in found
    ]
    return table(header, rows, left=2)


def _signed(change: float) -> str:
    # Rounded first, so that there is no negative zero.
    return shown(round(change, 3) + 0.0, "+.1%")


def _hand_overs(simulation: Simulation, metrics: Metrics) -> Iterator[tuple[str, str]]:
    """Yields what the prefill pool did, and what went over the links between both pools."""
    if simulation.prefill is not None:
        busy = shown(metrics["prefill_busy_share"], ".1%")
        peak = shown(metrics["prefill_kv_usage_peak"], ".1%")
        done = f"{metrics['prefill_requests']:,} of {metrics['completed']:,} prompts"
        yield "Prefill pool", f"{done}, busy {busy}, peak KV use {peak}"
        yield (
            "KV transfer",
            f"{metrics['kv_transfer_gb']:,.1f} GB, busiest link in use "
            f"{shown(metrics['link_busy_share'], '.1%')} of the time, "
            f"at {shown(metrics['link_use'], '.1%')} of its bandwidth",
        )


def _speculation(simulation: Simulation, metrics: Metrics) -> Iterator[tuple[str, str]]:
    speculation = simulation.engine.speculation
    if speculation is not None:
        length = shown(metrics["spec_decode_acceptance_length"], ".2f")
        rate = shown(metrics["spec_decode_acceptance_rate"], ".1f")
        yield (
            "Speculation",
            f"{speculation.method}, {speculation.num_tokens} drafts a step: "
            f"{length} tokens a verification, {rate} % of drafts accepted",
        )


def _cost(metrics: Metrics) -> str:
    if math.isnan(metrics["usd_per_hour"]):
        return "this GPU's card has no cloud price"
    return (
        f"${metrics['usd_per_hour']:,.2f}/h, "
        f"${shown(metrics['usd_per_million_output_tokens'], ',.2f')} per million output tokens "
        "(cloud list price)"
    )


def _scaling(simulation: Simulation, metrics: Metrics) -> Iterator[tuple[str, str]]:
    """Yields how many replicas there were, what they cost and what went wrong."""
    if "gpu_hours" not in metrics:
        return
    is_split = "prefill_gpu_hours" in metrics
    if is_split:
        yield "Prefill", _served(metrics, "prefill_")
    yield "Decode" if is_split else "Replicas", _served(metrics)
    prefill = f"prefill {metrics['prefill_gpu_hours']:,.2f}, " if is_split else ""
    yield (
        "GPU-hours",
        f"{metrics['gpu_hours']:,.2f} (${shown(metrics['usd_total'], ',.2f')}), of which {prefill}"
        f"starting {metrics['gpu_hours_starting']:,.2f}, "
        f"in reserve {metrics['gpu_hours_reserve']:,.2f}",
    )
    if simulation.deployment.has_failures or metrics["retries"]:
        crashes = metrics["crashes"] + metrics.get("prefill_crashes", 0)
        yield "Failures", f"{crashes} crashes, {metrics['retries']:,} retries"


def _served(metrics: Metrics, prefix: str = "") -> str:
    """Returns how many replicas of a pool served, and how many began to."""
    own = {name: metrics[prefix + name] for name in _SERVED}
    return (
        f"{own['replicas_min']} to {own['replicas_max']} served, mean "
        f"{shown(own['replicas_mean'], '.2f')}; {own['starts']} started in "
        f"{shown(own['mean_start_s'], ',.1f')} s (mean), "
        f"{own['requests_held']:,} requests waited for one"
    )


_SERVED = (
    "replicas_min",
    "replicas_max",
    "replicas_mean",
    "starts",
    "mean_start_s",
    "requests_held",
)


_EXPECTED = (
    ("mean_ttft_ms", "TTFT", " ms", ",.1f"),
    ("mean_tpot_ms", "TPOT", " ms", ",.1f"),
    ("request_throughput", "", " requests/s", ",.2f"),
)


def _expected(metrics: Metrics, expectation: Expectation) -> Iterator[tuple[str, str]]:
    """Yields predictions with the interval that is meant to hold four measurements in five."""
    words = [
        f"{label} {metrics[name]:{form}}{unit} "
        f"(80 %: {interval.low:{form}}–{interval.high:{form}})".lstrip()
        for name, label, unit, form in _EXPECTED
        if (interval := expectation.intervals.get(name)) is not None
    ]
    if words:
        yield "Expect", ", ".join(words)


def _over_seeds(spread: Mapping[str, Estimate]) -> Iterator[tuple[str, str]]:
    """Yields means over seeds with their standard errors."""
    words = [
        f"{label} {shown(spread[name].mean, form)} ± "
        f"{shown(spread[name].standard_error, form)}{unit}".lstrip()
        for name, label, unit, form in _EXPECTED
        if name in spread
    ]
    if words:
        yield "Over seeds", ", ".join(words)


def _calibration(expectation: Expectation) -> Iterator[tuple[str, str]]:
    """Yields what overheads were fitted to, and what of this deployment was not."""
    row = expectation.calibration
    lines = list(expectation.extrapolated)
    if row is not None:
        oldest, newest = row.versions
        versions = oldest if oldest == newest else f"{oldest} to {newest}"
        errors = ", ".join(f"{k.upper()} {v['after']:.0%}" for k, v in _errors(row.held_out))
        about = f" (median error on held-out groups: {errors})" if errors else ""
        lines.insert(0, f"{row.backend} {versions} on {row.gpu_class} GPUs{about}")
    for number, line in enumerate(lines):
        yield "" if number else "Calibrated", line


def _errors(held_out: Mapping[str, Mapping[str, float]]) -> list[tuple[str, Mapping[str, float]]]:
    return [(name, held_out[name]) for name in ("tpot", "ttft") if name in held_out]


def _foundations(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """Yields which kernels' times were measured and which only inferred."""
    by_kind: dict[str, list[str]] = {}
    for source in simulation.sources:
        by_kind.setdefault(source.source, []).append(source.name)
    heading = "Rests on"
    for kind in ("measured", "transferred", "roofline"):
        if kind in by_kind:
            yield heading, f"{kind}: {', '.join(dict.fromkeys(by_kind[kind]))}"
            heading = ""
