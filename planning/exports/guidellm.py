"""``guidellm run`` (0.7 and later): the command that sends the candidate's workload to a server."""

from __future__ import annotations

import math

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate, Files, script
from dynosim.planning.exports.bench_load import (
    UNKNOWN,
    URL,
    lengths_of,
    normal_note,
    num_prompts,
    refuse,
)
from dynosim.sim.workload.spec import WorkloadSpec


def write(candidate: Candidate) -> Files:
    """Returns the benchmark's script; UserError for a workload that the tool cannot send."""
    notes = normal_note("guidellm", lengths_of(candidate.workload))
    return {"bench.sh": script([f"load for {candidate.model}", *notes], arguments(candidate))}


def arguments(candidate: Candidate) -> list[str]:
    """Returns the whole command."""
    spec = candidate.workload
    # Its Mooncake reader takes seconds where the trace has milliseconds (guidellm 0.8.1).
    refuse(spec, "guidellm", "trace", "lengths_from", "prefix_zipf", *UNKNOWN)
    words = ["guidellm", "run"]
    words += ["--backend", f"kind=openai_http,target={URL},model={candidate.model}"]
    words += ["--profile", _profile(spec)]
    words += ["--constraint", f"kind=max_requests,count={num_prompts(spec)}"]
    words += ["--data", _data(spec)]
    words += ["--tokenizer", f"kind=huggingface_auto,model={candidate.model}"]
    return [*words, "--output", "kind=json,path=guidellm.json"]


def _profile(spec: WorkloadSpec) -> str:
    rate = spec.request_rate
    if rate is None or math.isinf(rate):
        count = spec.max_concurrency
        return f"kind=concurrent,streams={count}" if count else "kind=throughput"
    refuse(spec, "guidellm with a rate", "max_concurrency")
    if math.isinf(spec.burstiness):
        return f"kind=constant,rate={rate:g}"
    if spec.burstiness != 1:
        raise UserError(
            f"guidellm has no arrivals of burstiness {spec.burstiness:g}",
            where="workload: burstiness",
            hint="allowed: 1 (Poisson) or inf (constant)",
        )
    return f"kind=poisson,rate={rate:g}"


def _data(spec: WorkloadSpec) -> str:
    found = lengths_of(spec)
    parts = {
        "kind": "synthetic_text",
        "prompt_tokens": f"{found.input_mean:.0f}",
        "output_tokens": f"{found.output_mean:.0f}",
    }
    if found.input_std:
        parts["prompt_tokens_stdev"] = f"{found.input_std:.0f}"
    if found.output_std:
        parts["output_tokens_stdev"] = f"{found.output_std:.0f}"
    if spec.random_prefix_len:
        parts["prefix_tokens"] = str(spec.random_prefix_len)
        parts["prefix_count"] = str(spec.num_prefixes)
    return ",".join(f"{name}={value}" for name, value in parts.items())
