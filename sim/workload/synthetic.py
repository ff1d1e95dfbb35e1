"""Synthetic requests: arrivals, lengths and shared prefixes, each from its own random stream."""

from __future__ import annotations

import math
from pathlib import Path

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.sim.random_streams import stream
from dynosim.sim.workload.arrivals import paced_arrivals, varying_arrivals
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.lengths import (
    empirical_lengths,
    fixed_lengths,
    lognormal_lengths,
    uniform_lengths,
)
from dynosim.sim.workload.sessions import as_sessions
from dynosim.sim.workload.shared_prefixes import shared_prefixes, zipf_popularity
from dynosim.sim.workload.spec import WorkloadSpec

# Defaults of `vllm bench serve --dataset-name random` (vLLM 0.33).
NUM_PROMPTS = 1000
INPUT_LEN = 1024
OUTPUT_LEN = 128


def synthesize(spec: WorkloadSpec) -> Workload:
    """Returns the requests that the synthetic options of a checked ``spec`` describe.

    The same seed gives the same lengths and prefixes whatever the rate, and the same arrivals,
    scaled, for another rate. The prompt is the shared prefix plus the drawn input length.
    """
    n = spec.num_prompts or NUM_PROMPTS
    tokens_in, tokens_out = _lengths(spec, n)
    ids, offsets = shared_prefixes(
        n,
        spec.random_prefix_len,
        spec.prefix_block_tokens,
        zipf_popularity(spec.num_prefixes, spec.prefix_zipf),
        stream(spec.seed, "prefix group"),
    )
    paced = _arrivals(spec, n)
    load = Workload(
        name=_name(spec),
        arrival_s=paced,
        input_tokens=tokens_in + spec.random_prefix_len,
        output_tokens=tokens_out,
        prefix_ids=ids,
        prefix_offsets=offsets,
        prefix_block_tokens=spec.prefix_block_tokens if len(ids) else 0,
        max_concurrency=spec.max_concurrency,
    ).check()
    if spec.num_turns == 1:
        return load
    return as_sessions(load, spec.num_turns, spec.think_time_s, spec.prefix_block_tokens, paced)


def _arrivals(spec: WorkloadSpec, n: int) -> FloatArray:
    rng = stream(spec.seed, "arrivals")
    if spec.request_rates is not None:
        return varying_arrivals(n, spec.request_rates, spec.burstiness, rng)
    return paced_arrivals(n, spec.request_rate or math.inf, spec.burstiness, rng)


def _lengths(spec: WorkloadSpec, n: int) -> tuple[IntArray, IntArray]:
    if spec.lengths_from is not None:
        return empirical_lengths(n, spec.lengths_from, stream(spec.seed, "length pairs"))
    tokens_in = _drawn(spec, n, "input", spec.random_input_len or INPUT_LEN, spec.random_input_cv)
    tokens_out = _drawn(
        spec, n, "output", spec.random_output_len or OUTPUT_LEN, spec.random_output_cv
    )
    return tokens_in, tokens_out


def _drawn(spec: WorkloadSpec, n: int, side: str, tokens: int, cv: float | None) -> IntArray:
    rng = stream(spec.seed, f"{side} lengths")
    if cv is not None:
        return lognormal_lengths(n, tokens, rng, cv=cv)
    if spec.random_range_ratio is not None:
        convention = spec.random_range_convention
        return uniform_lengths(n, tokens, spec.random_range_ratio, rng, convention=convention)
    return fixed_lengths(n, tokens)


def _name(spec: WorkloadSpec) -> str:
    if spec.lengths_from is not None:
        lengths = f"lengths of {Path(spec.lengths_from).name}"
    else:
        lengths = f"{spec.random_input_len or INPUT_LEN}/{spec.random_output_len or OUTPUT_LEN}"
    pace = f" at {spec.request_rate:g} req/s" if spec.request_rate else ""
    if spec.num_turns > 1:
        pace += f", sessions of {spec.num_turns} turns"
    cap = f", at most {spec.max_concurrency} in flight" if spec.max_concurrency else ""
    return f"synthetic {lengths}{pace}{cap}"
