"""Latency, throughput and utilisation of a run, under the names of ``vllm bench serve``.

Definitions (docs.vllm.ai, "Benchmark CLI"; they differ between tools): TTFT runs from the client's
send to the first token; TPOT is (E2EL - TTFT) / (output tokens - 1) per request; ITL pools the gaps
between consecutive tokens of all requests; goodput counts requests that meet every SLO. With
speculative decoding a step's tokens arrive together, as one chunk of the stream, and so do those
that ``stream_interval`` holds back: like ``vllm bench serve``, ITL then pools the gaps between
chunks, and TPOT remains the time a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynosim.hardware_models.arrays import BoolArray, FloatArray, IntArray
from dynosim.sim.engine.drafting import Drafting
from dynosim.sim.engine.step_times import StepTimes
from dynosim.sim.quantiles import Progressions, median, quantiles
from dynosim.sim.refusal import Refusal
from dynosim.sim.results import HandOvers, ReplicaLog, RunResult
from dynosim.sim.stream_events import event_gaps_s
from dynosim.sim.tiers.result import TierResult

PERCENTILES = (50, 90, 95, 99)
GOODPUT_KINDS = ("ttft", "tpot", "e2el")

Metrics = dict[str, float]
"""Flat names to numbers; times in ms, rates per second. Absent quantities are NaN."""


def summarize(result: RunResult, slos_ms: Mapping[str, float] | None = None) -> Metrics:
    """Returns all metrics of a run.

    ``slos_ms`` are goodput thresholds in ms by ``ttft``, ``tpot``, ``e2el``; with none given,
    ``request_goodput`` is NaN. Raises ValueError for any other name: goodput judges requests, and
    a gap between tokens (``itl``) belongs to no single one.
    """
    if unknown := (slos_ms or {}).keys() - GOODPUT_KINDS:
        raise ValueError(f"no goodput threshold on {sorted(unknown)}; allowed: {GOODPUT_KINDS}")
    latency_s = request_latencies_s(result)
    metrics = _counts_and_rates(result)
    for name, values in latency_s.items():
        metrics |= _statistics(name, values[~np.isnan(values)] * 1e3)
    metrics |= _itl_statistics(result)
    metrics |= _goodput(latency_s, slos_ms, metrics["duration"], ~result.cancelled)
    metrics |= _per_user(latency_s["tpot"])
    metrics |= _engine_use(result.replicas)
    if result.workload.client.gives_up or result.wasted_tokens.any():
        metrics |= _waste(result)
    if result.tiers is not None:
        metrics |= _tier_hits(result.tiers, metrics["total_input_tokens"])
    if result.hand_overs is not None:
        metrics |= _hand_over_use(result.hand_overs, metrics["duration"])
        if (tiers := result.hand_overs.tiers) is not None:
            hits = _tier_hits(tiers, metrics["total_input_tokens"])
            metrics |= {f"prefill_{name}": value for name, value in hits.items()}
    if result.drafting is not None:
        metrics |= _verification(result, result.drafting)
    return metrics


def per_gpu(metrics: Metrics, num_gpus: float, usd_per_gpu_hour: float | None) -> Metrics:
    """Returns throughput per GPU and what it costs; NaN where the GPU has no price."""
    price = float("nan") if usd_per_gpu_hour is None else usd_per_gpu_hour
    usd_per_hour = price * num_gpus
    output_tok_s = metrics["output_throughput"]
    return {
        "num_gpus": num_gpus,
        "output_tok_s_per_gpu": output_tok_s / num_gpus,
        "total_tok_s_per_gpu": metrics["total_token_throughput"] / num_gpus,
        "usd_per_hour": usd_per_hour,
        "usd_per_million_output_tokens": usd_per_hour / (output_tok_s * 3600) * 1e6,
    }


def request_latencies_s(result: RunResult) -> dict[str, FloatArray]:
    """Returns per-request seconds: ttft, its parts frontend, router, queue and prefill, tpot, e2el.

    NaN for refused requests, and for the TPOT of single-token answers, which have none. With a
    prefill pool the TTFT has one part more, transfer; what then is still computed of the prompt
    where the answer is decoded belongs to prefill. Where a network lies between client and server
    it is one part more, and server_ttft and server_e2el are without it. Where KV comes from lower
    tiers that is kv_load. Where clients limit what they have in flight, client_wait passes before
    they send, and user_ttft and user_e2el run from when users asked.
    """
    gaps = np.maximum(result.workload.output_tokens - 1, 0)
    decode_s = result.finish_s - result.first_token_s
    ttft_s = result.first_token_s - result.sent_s
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot_s = np.where(gaps > 0, decode_s / gaps, np.nan)
    router_s = result.routed_s - result.arrived_s
    queue_s = result.scheduled_s - result.routed_s
    rest_s = ttft_s - router_s - queue_s - result.frontend_s
    server_s = {}
    if (network := result.workload.network) is not None:
        network_s = network.up_s(result.workload.input_tokens) + network.down_s
        rest_s = rest_s - network_s
        e2el_s = result.finish_s - result.sent_s
        server_s = {
            "network": np.where(result.completed, network_s, np.nan),
            "server_ttft": ttft_s - network_s,
            "server_e2el": e2el_s - network_s,
        }
    parts_s = {"router": router_s, "queue": queue_s, "prefill": rest_s}
    if tiers := _tiers(result):
        load_s = sum([_load_s(result, own) for own in tiers], start=np.zeros(len(ttft_s)))
        load_s = np.where(result.completed, load_s, np.nan)
        parts_s |= {"queue": queue_s - load_s, "kv_load": load_s}
    if result.hand_overs is not None:
        transfer_s = np.where(result.completed, result.hand_overs.transfer_s, np.nan)
        parts_s |= {"prefill": rest_s - transfer_s, "transfer": transfer_s}
    return {
        "ttft": ttft_s,
        **server_s,
        **_user_s(result),
        "frontend": result.frontend_s,
        **parts_s,
        "tpot": tpot_s,
        "e2el": result.finish_s - result.sent_s,
    }


def _user_s(result: RunResult) -> dict[str, FloatArray]:
    """Returns what users wait for, where their own clients hold requests back."""
    if result.workload.client.client_max_in_flight is None:
        return {}
    return {
        "client_wait": np.where(result.completed, result.sent_s - result.wanted_s, np.nan),
        "user_ttft": result.first_token_s - result.wanted_s,
        "user_e2el": result.finish_s - result.wanted_s,
    }


def _tiers(result: RunResult) -> list[TierResult]:
    """Returns the tiers of every pool that has some."""
    hand_overs = result.hand_overs
    found = [result.tiers, None if hand_overs is None else hand_overs.tiers]
    return [tiers for tiers in found if tiers is not None]


def _load_s(result: RunResult, tiers: TierResult) -> FloatArray:
    """Returns for how long every request's KV was coming while the request was queued.

    That of attempts that came to nothing is part of the time until it was routed, and that of
    requests that were preempted is later.
    """
    at = tiers.request
    counts = (tiers.start_s >= result.routed_s[at]) & (tiers.start_s <= result.scheduled_s[at])
    load_s = np.zeros(len(result.workload))
    # One that was given up for want of blocks did not go on until its end.
    end_s = np.minimum(tiers.end_s, result.scheduled_s[at])
    np.add.at(load_s, at[counts], (end_s - tiers.start_s)[counts])
    return load_s


def _counts_and_rates(result: RunResult) -> Metrics:
    done = result.completed
    input_tokens = int(result.workload.input_tokens[done].sum())
    output_tokens = int(result.workload.output_tokens[done].sum())
    completed = int(done.sum())
    duration_s = float("nan")
    if completed:
        duration_s = float(result.finish_s[done].max() - result.sent_s[done].min())
    return {
        "duration": duration_s,
        "completed": completed,
        "failed": len(done) - completed - int(result.cancelled.sum()),
        "rejected": int(result.shed.sum()),
        **_rejections(result),
        "total_input_tokens": input_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": completed / duration_s,
        "output_throughput": output_tokens / duration_s,
        "total_token_throughput": (input_tokens + output_tokens) / duration_s,
        "max_concurrent_requests": _max_concurrent(result),
        "preemptions": int(result.preemptions.sum()),
        "prefix_hit_rate": float(result.cached_tokens[done].sum() / max(input_tokens, 1)),
    }


def _rejections(result: RunResult) -> Metrics:
    """Returns how many requests were shed, by reason."""
    reasons = [r for r in Refusal if r > Refusal.TOO_LONG and r != Refusal.CANCELLED]
    return {f"rejected_{r.name.lower()}": int((result.refusal == r).sum()) for r in reasons}


def _waste(result: RunResult) -> Metrics:
    """Returns how many users went away, and the tokens that nobody got to the end of."""
    return {
        "cancelled": int(result.cancelled.sum()),
        "wasted_output_tokens": int(result.wasted_tokens.sum()),
    }


def _max_concurrent(result: RunResult) -> int:
    done = result.completed
    times = np.concatenate([result.sent_s[done], result.finish_s[done]])
    change = np.repeat([1, -1], int(done.sum()))
    # At equal times an answer ends before the next request starts.
    order = np.lexsort((change, times))
    return int(np.cumsum(change[order]).max(initial=0))


def _statistics(name: str, values_ms: FloatArray) -> Metrics:
    if not len(values_ms):
        names = ["mean", "median", "std", *(f"p{p}" for p in PERCENTILES)]
        return {f"{s}_{name}_ms": float("nan") for s in names}
    at = quantiles(values_ms, [p / 100 for p in PERCENTILES]).tolist()
    return {
        f"mean_{name}_ms": float(values_ms.mean()),
        f"median_{name}_ms": at[0],
        f"std_{name}_ms": float(values_ms.std()),
        **{f"p{p}_{name}_ms": v for p, v in zip(PERCENTILES, at, strict=True)},
    }


def _itl_statistics(result: RunResult) -> Metrics:
    gaps_s = token_gaps_s(result)
    mean, std = gaps_s.mean_std()
    at = [gaps_s.quantile(p / 100) for p in PERCENTILES]
    return {
        "mean_itl_ms": mean * 1e3,
        "median_itl_ms": at[0] * 1e3,
        "std_itl_ms": std * 1e3,
        **{f"p{p}_itl_ms": v * 1e3 for p, v in zip(PERCENTILES, at, strict=True)},
    }


def token_gaps_s(result: RunResult) -> Progressions:
    """Returns the gaps between consecutive tokens, or writes to a stream, of all requests.

    Within a stint every request of the batch sees each step's duration, with the pauses before it;
    a preemption adds the gap from one stint to the next.
    """
    if result.stream_interval > 1:
        gaps_s = [event_gaps_s(log, result.stream_interval) for log in result.replicas]
        return Progressions.of(np.concatenate(gaps_s))
    parts: list[Sequence[FloatArray | IntArray]] = []
    for log in result.replicas:
        parts.append(_step_gaps_s(log.delivered))
        waits_s = _resumption_gaps_s(log)
        parts.append((waits_s, 0 * waits_s, 0 * waits_s + 1, 0 * waits_s + 1))
    return Progressions(*map(np.concatenate, zip(*parts, strict=True)))


def _step_gaps_s(steps: StepTimes) -> Sequence[FloatArray | IntArray]:
    """Returns the gaps within stints: dt, growth, count and weight."""
    columns = steps.dt_s, steps.growth_s, steps.counts, steps.num_decode
    if not steps.is_pause.any():
        return columns
    gaps = np.stack(columns)
    # Of those who decode after a pause, some sat it out, the others got their first token in it.
    pauses = np.flatnonzero(steps.is_pause)
    sat_out = np.zeros(len(steps.counts) + 1)
    sat_out[pauses + 1] = steps.num_decode[pauses]
    # A run's first step, as seen by those who had their last token just before it.
    first = gaps * [[1.0], [0.0], [0.0], [1.0]]
    first[2] = 1.0
    first[3] -= sat_out[:-1]
    # Those who join for a pause see it to the end of the step that ends it.
    decodes = np.flatnonzero(~steps.is_pause)
    following = decodes[np.searchsorted(decodes, pauses)]
    end_s = steps.start_s[following] + steps.dt_s[following]
    first[0, pauses] = end_s - steps.start_s[pauses]
    rest = np.stack([steps.dt_s + steps.growth_s, *gaps[1:]])
    rest[2] -= 1.0
    return tuple(np.concatenate([first, rest], axis=1))


def _resumption_gaps_s(log: ReplicaLog) -> FloatArray:
    """Returns, for every preemption after a first token, the wait from token to token."""
    request, first, end = log.stints.T
    order = np.argsort(request, kind="stable")
    resumed = np.flatnonzero(np.diff(request[order]) == 0)
    before = log.delivered.ends_s(end[order][resumed] - 1)
    return log.delivered.ends_s(first[order][resumed + 1]) - before


def _goodput(
    latency_s: Mapping[str, FloatArray],
    slos_ms: Mapping[str, float] | None,
    duration_s: float,
    counts: BoolArray,
) -> Metrics:
    """Returns good requests per second, and their share among those that count."""
    if not slos_ms:
        return {"request_goodput": float("nan"), "slo_attainment": float("nan")}
    good = ~np.isnan(latency_s["e2el"])
    for name, limit_ms in slos_ms.items():
        # A single-token answer has no TPOT to miss.
        values_s = np.nan_to_num(latency_s[name], nan=0.0)
        good &= values_s * 1e3 <= limit_ms
    return {
        "request_goodput": float(good.sum() / duration_s),
        "slo_attainment": float(good[counts].mean()) if counts.any() else float("nan"),
    }


def _per_user(tpot_s: FloatArray) -> Metrics:
    tpot_s = tpot_s[tpot_s > 0]
    if not len(tpot_s):
        return {"output_tok_s_per_user": float("nan")}
    return {"output_tok_s_per_user": 1.0 / median(tpot_s)}


def _tier_hits(tiers: TierResult, input_tokens: float) -> Metrics:
    """Returns the shares of prompt tokens that were loaded from each tier, and what loads took.

    ``prefix_hit_rate`` counts them, too, as far as they were still there when the request entered.
    """
    took_ms = (tiers.end_s - tiers.start_s) * 1e3
    return {
        **{
            f"kv_{tier.name}_hit_rate": tier.loaded_tokens / max(input_tokens, 1)
            for tier in tiers.tiers
        },
        "kv_loads": len(took_ms),
        "mean_kv_load_ms": float(took_ms.mean()) if len(took_ms) else 0.0,
    }


def _verification(result: RunResult, drafting: Drafting) -> Metrics:
    """Returns what became of the drafts, under the names of ``vllm bench serve``.

    The acceptance length is tokens per verification, the target's own included; drafts beyond the
    end of an answer count as refused. The rate is in percent.
    """
    rows = np.concatenate([log.verifications for log in result.replicas])
    tokens, drafts = int(rows[:, 1].sum()), int(rows[:, 2].sum())
    accepted, drafted = tokens - drafts, drafts * drafting.num_tokens
    return {
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": drafted,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_acceptance_rate": 100.0 * accepted / drafted if drafted else float("nan"),
        "spec_decode_acceptance_length": tokens / drafts if drafts else float("nan"),
    }


def _engine_use(replicas: tuple[ReplicaLog, ...]) -> Metrics:
    """Returns KV use and busy share over the replicas that did anything."""
    logs = [log.steps for log in replicas if len(log.steps)]
    if not logs:
        return {"kv_usage_mean": float("nan"), "kv_usage_peak": float("nan"), "busy_share": 0.0}
    busy_s = sum(float(steps.durations_s.sum()) for steps in logs)
    held = sum(float(steps.used_blocks @ steps.durations_s) for steps in logs)
    end_s = max(float(steps.start_s[-1] + steps.durations_s[-1]) for steps in logs)
    begin_s = min(float(steps.start_s[0]) for steps in logs)
    span_s = (end_s - begin_s) * len(replicas)
    num_blocks = replicas[0].num_blocks
    return {
        "kv_usage_mean": held / (num_blocks * busy_s),
        "kv_usage_peak": max(float(steps.used_blocks.max()) for steps in logs) / num_blocks,
        "busy_share": busy_s / span_s,
    }


def _hand_over_use(hand_overs: HandOvers, duration_s: float) -> Metrics:
    """Returns what a prefill pool and the links did; ``link_busy_share`` is the busiest's.

    A link's ``use`` is what it carried of what it could have carried.
    """
    links = hand_overs.links
    own = {f"prefill_{name}": v for name, v in _engine_use(hand_overs.replicas).items()}
    return own | {
        "prefill_requests": int((hand_overs.replica >= 0).sum()),
        # Every byte leaves one link and comes in through another.
        "kv_transfer_gb": sum(link.carried_bytes for link in links) / 2e9,
        "link_busy_share": max(link.busy_s for link in links) / duration_s,
        "link_use": max(link.carried_bytes / link.bandwidth_bytes_s for link in links) / duration_s,
    }
