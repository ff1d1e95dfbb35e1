"""``aiperf profile``: the command that sends the candidate's workload to a server."""

from __future__ import annotations

import math

from dynosim.planning.exports.base import Candidate, Files, script
from dynosim.planning.exports.bench_load import (
    UNKNOWN,
    URL,
    Lengths,
    lengths_of,
    normal_note,
    num_prompts,
    refuse,
    trace_path,
)
from dynosim.sim.workload.spec import WorkloadSpec

_GOODPUT = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "e2el": "request_latency",
}
"""AIPerf's inter-token latency is the mean over a request's tokens: what vLLM calls TPOT."""


def write(candidate: Candidate) -> Files:
    """Returns the benchmark's script; UserError for a workload that the tool cannot send."""
    spec = candidate.workload
    notes = normal_note("aiperf", lengths_of(spec)) if spec.trace is None else []
    return {"bench.sh": script([f"load for {candidate.model}", *notes], arguments(candidate))}


def arguments(candidate: Candidate) -> list[str]:
    """Returns the whole command."""
    spec = candidate.workload
    words = ["aiperf", "profile", "--model", candidate.model, "--url", URL]
    words += ["--endpoint-type", "chat", "--streaming", "--random-seed", str(candidate.seed)]
    words += _trace(candidate) if spec.trace is not None else _synthetic(spec)
    # Without this an answer may end before its length.
    words += ["--extra-inputs", "ignore_eos:true"]
    if candidate.goodput_ms:
        limits = " ".join(f"{_GOODPUT[k]}:{v:g}" for k, v in candidate.goodput_ms.items())
        words += ["--goodput", limits]
    return words


def _synthetic(spec: WorkloadSpec) -> list[str]:
    refuse(spec, "aiperf", "lengths_from", "prefix_zipf", *UNKNOWN)
    words = [*_lengths(lengths_of(spec)), "--request-count", str(num_prompts(spec))]
    if spec.random_prefix_len:
        words += ["--num-prefix-prompts", str(spec.num_prefixes)]
        words += ["--prefix-prompt-length", str(spec.random_prefix_len)]
    rate = spec.request_rate
    if rate is not None and math.isfinite(rate):
        words += ["--request-rate", f"{rate:g}"]
        if math.isinf(spec.burstiness):
            words += ["--arrival-pattern", "constant"]
        elif spec.burstiness == 1:
            words += ["--arrival-pattern", "poisson"]
        else:
            words += ["--arrival-pattern", "gamma", "--vllm-burstiness", f"{spec.burstiness:g}"]
    in_flight = spec.max_concurrency or (num_prompts(spec) if rate is None else None)
    return words + (["--concurrency", str(in_flight)] if in_flight else [])


def _lengths(lengths: Lengths) -> list[str]:
    words = ["--isl", f"{lengths.input_mean:.0f}"]
    words += ["--isl-stddev", f"{lengths.input_std:.0f}"] if lengths.input_std else []
    words += ["--osl", f"{lengths.output_mean:.0f}"]
    return words + (["--osl-stddev", f"{lengths.output_std:.0f}"] if lengths.output_std else [])


def _trace(candidate: Candidate) -> list[str]:
    refuse(candidate.workload, "aiperf", "rate_scale", "jitter_ticks", "limit", "num_prompts")
    refuse(candidate.workload, "aiperf --fixed-schedule", "max_concurrency")
    path = trace_path(candidate, "aiperf", "mooncake")
    return ["--input-file", path, "--custom-dataset-type", "mooncake_trace", "--fixed-schedule"]
