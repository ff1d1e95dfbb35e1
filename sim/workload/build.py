"""From flat options to a workload: the one door for command-line flags and YAML."""

from __future__ import annotations

from dataclasses import replace

from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.network import network_of
from dynosim.sim.workload.spec import WorkloadSpec, check_spec
from dynosim.sim.workload.synthetic import synthesize
from dynosim.sim.workload.traces import read_trace


def build_workload(spec: WorkloadSpec) -> Workload:
    """Returns the requests that ``spec`` describes.

    Raises ``UserError`` for contradictory options and for anything wrong in a file.
    """
    check_spec(spec)
    network = network_of(spec)
    if spec.trace is None:
        return replace(synthesize(spec), client=spec.client, network=network)
    load = read_trace(
        spec.trace,
        spec.trace_format,
        rate_scale=spec.rate_scale,
        jitter_ticks=spec.jitter_ticks,
        limit=spec.limit or spec.num_prompts,
        seed=spec.seed,
        block_tokens=spec.trace_block_tokens,
    )
    return replace(load, max_concurrency=spec.max_concurrency, client=spec.client, network=network)
