"""``vllm bench serve``: the command that sends the candidate's workload to a server."""

from __future__ import annotations

import math

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate, Files, script
from dynosim.planning.exports.bench_load import (
    UNKNOWN,
    URL,
    lengths_of,
    num_prompts,
    refuse,
    trace_path,
)
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.sim.workload.synthetic import INPUT_LEN, OUTPUT_LEN

_DRAWS = ("lengths_from", "random_input_cv", "random_output_cv")


def write(candidate: Candidate) -> Files:
    """Returns the benchmark's script; UserError for a workload that the tool cannot send."""
    return {"bench.sh": script([f"load for {candidate.model}"], arguments(candidate))}


def arguments(candidate: Candidate) -> list[str]:
    """Returns the whole command."""
    spec = candidate.workload
    words = ["vllm", "bench", "serve", "--backend", "vllm", "--model", candidate.model]
    words += ["--base-url", URL, "--seed", str(candidate.seed)]
    words += _trace(candidate) if spec.trace is not None else _random(spec)
    if spec.max_concurrency is not None:
        words += ["--max-concurrency", str(spec.max_concurrency)]
    if candidate.goodput_ms:
        words += ["--goodput", *(f"{k}:{v:g}" for k, v in candidate.goodput_ms.items())]
    words += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99"]
    return [*words, "--save-result"]


def _random(spec: WorkloadSpec) -> list[str]:
    refuse(spec, "vllm bench serve", *_DRAWS, *UNKNOWN)
    if spec.num_prefixes > 1:
        refuse(spec, "vllm bench serve --dataset-name random", "num_prefixes")
    words = ["--dataset-name", "random", "--ignore-eos", "--num-prompts", str(num_prompts(spec))]
    if spec.random_range_convention == "vllm":
        tokens = (spec.random_input_len or INPUT_LEN, spec.random_output_len or OUTPUT_LEN)
        ratio = spec.random_range_ratio
    else:
        # rL to L is, about its middle, a half-width of (1 - r) / (1 + r).
        found = lengths_of(spec)
        tokens = (round(found.input_mean), round(found.output_mean))
        r = spec.random_range_ratio or 0.0
        ratio = (1 - r) / (1 + r)
    words += ["--random-input-len", str(tokens[0]), "--random-output-len", str(tokens[1])]
    if ratio:
        words += ["--random-range-ratio", f"{ratio:g}"]
    if spec.random_prefix_len:
        words += ["--random-prefix-len", str(spec.random_prefix_len)]
    rate = spec.request_rate
    if rate is not None and math.isfinite(rate):
        words += ["--request-rate", f"{rate:g}"]
        if math.isinf(spec.burstiness):
            raise UserError(
                "vllm bench serve has no constant rate",
                where="workload: burstiness",
                hint="1000 is nearly one",
            )
        words += ["--burstiness", f"{spec.burstiness:g}"]
    return words


def _trace(candidate: Candidate) -> list[str]:
    spec = candidate.workload
    refuse(spec, "vllm bench serve", "rate_scale", "jitter_ticks")
    path = trace_path(candidate, "vllm bench serve", "mooncake")
    words = ["--dataset-name", "timed_trace", "--dataset-path", path]
    words += ["--timed-trace-sec-multiplier", "0.001"]
    words += ["--timed-trace-chunk-hash-size", str(spec.trace_block_tokens or 512)]
    count = spec.limit or spec.num_prompts
    return words + (["--num-prompts", str(count)] if count else [])
