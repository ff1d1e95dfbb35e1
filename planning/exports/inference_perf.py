"""``inference-perf --config_file``: the load of the candidate's workload, and the command.

Keys are those of kubernetes-sigs/inference-perf, docs/config.md, docs/loadgen.md and
docs/goodput.md (read 2026-11); the configuration model of release 0.7.0 takes what is written here.
"""

from __future__ import annotations

import math
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate, Files, script
from dynosim.planning.exports.bench_load import (
    UNKNOWN,
    URL,
    Lengths,
    lengths_of,
    num_prompts,
    refuse,
)
from dynosim.planning.exports.trtllm import yaml_text
from dynosim.sim.workload.spec import WorkloadSpec

CONFIG = "inference-perf.yaml"
_GOODPUT = {"ttft": "ttft", "tpot": "tpot", "e2el": "request_latency"}
_SERVERS = ("vllm", "sglang")
"""Servers whose metrics it knows by name; others with OpenAI's interface are sent what vLLM is."""
_TAIL = 10.0
"""Standard deviations above the mean at which a length is cut off, as the tool must be told."""


def write(candidate: Candidate) -> Files:
    """Returns the configuration and the script; UserError for what the tool cannot send."""
    command = ["inference-perf", "--config_file", CONFIG]
    return {
        CONFIG: yaml_text(config(candidate)),
        "bench.sh": script([f"load for {candidate.model}"], command),
    }


def config(candidate: Candidate) -> dict[str, Any]:
    """Returns the whole configuration."""
    spec = candidate.workload
    refuse(spec, "inference-perf", "trace", "lengths_from", "prefix_zipf", *UNKNOWN)
    server = candidate.backend if candidate.backend in _SERVERS else "vllm"
    return {
        "api": {"type": "completion", "streaming": True},
        "server": {
            "type": server,
            "model_name": candidate.model,
            "base_url": URL,
            # Without this an answer may end before its length.
            "ignore_eos": True,
        },
        "tokenizer": {"pretrained_model_name_or_path": candidate.model},
        "load": {**_load(spec), "base_seed": candidate.seed},
        "data": _data(spec, candidate.seed),
        "report": _report(candidate),
    }


def _load(spec: WorkloadSpec) -> dict[str, Any]:
    rate = spec.request_rate
    if rate is None or math.isinf(rate):
        in_flight = spec.max_concurrency or num_prompts(spec)
        stage = {"num_requests": num_prompts(spec), "concurrency_level": in_flight}
        return {"type": "concurrent", "stages": [stage]}
    refuse(spec, "inference-perf with a rate", "max_concurrency")
    return {"type": _arrivals(spec), "stages": [{"rate": rate, "duration": _seconds(spec, rate)}]}


def _seconds(spec: WorkloadSpec, rate: float) -> int:
    """Returns the whole seconds, as it takes no others, that come nearest to what was asked for."""
    return max(1, round(num_prompts(spec) / rate))


def _num_lengths(spec: WorkloadSpec) -> int:
    """Returns how many requests it may send: those last seconds may be longer."""
    rate = spec.request_rate
    if rate is None or math.isinf(rate):
        return num_prompts(spec)
    return max(num_prompts(spec), math.ceil(rate * _seconds(spec, rate)))


def _arrivals(spec: WorkloadSpec) -> str:
    if math.isinf(spec.burstiness):
        return "constant"
    if spec.burstiness == 1:
        return "poisson"
    raise UserError(
        f"inference-perf has no arrivals of burstiness {spec.burstiness:g}",
        where="workload: burstiness",
        hint="allowed: 1 (Poisson) or inf (constant)",
    )


def _data(spec: WorkloadSpec, seed: int) -> dict[str, Any]:
    found, count = lengths_of(spec), _num_lengths(spec)
    prompt = _distribution(found, found.input_mean, found.input_std)
    answer = _distribution(found, found.output_mean, found.output_std)
    if not spec.random_prefix_len:
        return {
            "type": "random",
            "input_distribution": {**prompt, "total_count": count},
            "output_distribution": {**answer, "total_count": count},
        }
    shared = {
        "num_groups": spec.num_prefixes,
        "num_prompts_per_group": -(-count // spec.num_prefixes),
        "system_prompt_len": spec.random_prefix_len,
        "question_len": prompt,
        "output_len": answer,
        "seed": seed,
    }
    return {"type": "shared_prefix", "shared_prefix": shared}


def _distribution(lengths: Lengths, mean: float, std: float) -> dict[str, Any]:
    if not std:
        tokens = round(mean)
        ends, shape = (tokens, tokens), "fixed"
    elif lengths.shape == "uniform":
        half = std * math.sqrt(3)
        ends, shape = (max(1, round(mean - half)), round(mean + half)), "uniform"
    else:
        ends, shape = (1, math.ceil(mean + _TAIL * std)), lengths.shape
    low, high = ends
    return {"type": shape, "min": low, "max": high, "mean": mean, "std_dev": round(std, 3)}


def _report(candidate: Candidate) -> dict[str, Any]:
    percentiles = [50, 90, 95, 99]
    report: dict[str, Any] = {"request_lifecycle": {"per_stage": True, "percentiles": percentiles}}
    if candidate.goodput_ms:
        limits_s = {_GOODPUT[k]: v / 1e3 for k, v in candidate.goodput_ms.items()}
        report["goodput"] = {"constraints": limits_s}
    return report
