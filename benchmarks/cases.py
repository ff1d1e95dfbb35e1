"""What is measured: deployments under workloads, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec

Case = tuple[Deployment, Workload]

CALM_REQ_S = 18.0
"""About four fifths of what one H100 serves of the chat requests below."""
SATURATED_REQ_S = 40.0


def conversation(trace: str) -> Case:
    """Returns Qwen3-32B on 8 workers of two H200 under a Mooncake trace, blocks of 512 tokens."""
    deployment = Deployment(
        model="Qwen/Qwen3-32B",
        gpu="h200_sxm",
        tensor_parallel_size=2,
        replicas=8,
        block_size=512,
    )
    return deployment, build_workload(WorkloadSpec(trace=trace))


def conversation_kv(trace: str) -> Case:
    """Returns the same behind a router that looks at prefix caches."""
    deployment, workload = conversation(trace)
    return replace(deployment, router="kv_aware"), workload


def azure(table: str) -> Case:
    """Returns Llama-3-8B on one A100 in chunks of 512 tokens, at most 512 sequences.

    ``table`` is a CSV with columns ``arrival_s``, ``input_tokens``, ``output_tokens``.
    """
    with Path(table).open(encoding="utf-8") as lines:
        header = next(lines).strip().split(",")
        places = [header.index(n) for n in ("arrival_s", "input_tokens", "output_tokens")]
        arrival_s, inputs, outputs = np.loadtxt(lines, delimiter=",", usecols=places).T
    deployment = Deployment(
        model="meta-llama/Meta-Llama-3-8B",
        gpu="a100_sxm",
        max_num_batched_tokens=512,
        max_num_seqs=512,
    )
    return deployment, Workload(
        name=Path(table).name,
        arrival_s=arrival_s,
        input_tokens=inputs.astype(np.int64),
        output_tokens=outputs.astype(np.int64),
        prefix_ids=np.empty(0, dtype=np.int64),
        prefix_offsets=np.zeros(len(arrival_s) + 1, dtype=np.int64),
    )


def _chat(num_requests: str, rate_req_s: float) -> Case:
    deployment = Deployment(model="meta-llama/Llama-3.1-8B-Instruct", gpu="h100_sxm")
    spec = WorkloadSpec(
        random_input_len=1024,
        random_input_cv=1.0,
        random_output_len=256,
        random_output_cv=1.0,
        request_rate=rate_req_s,
        num_prompts=int(num_requests),
    )
    return deployment, build_workload(spec)


def calm(num_requests: str) -> Case:
    """Returns Llama-3.1-8B on one H100 under as many chat requests as it can just serve."""
    return _chat(num_requests, CALM_REQ_S)


def saturated(num_requests: str) -> Case:
    """Returns the same under twice what it can serve: the queue grows, leaps are short."""
    return _chat(num_requests, SATURATED_REQ_S)


CASES: dict[str, Callable[[str], Case]] = {
    "conversation": conversation,
    "conversation_kv": conversation_kv,
    "azure": azure,
    "calm": calm,
    "saturated": saturated,
}
