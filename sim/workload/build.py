"""From flat options to a workload: the one door for command-line flags and YAML."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.sim.random_streams import stream
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
        load = replace(synthesize(spec), client=spec.client, network=network)
        return _with_clients(load, spec)
    load = read_trace(
        spec.trace,
        spec.trace_format,
        rate_scale=spec.rate_scale,
        jitter_ticks=spec.jitter_ticks,
        limit=spec.limit or spec.num_prompts,
        seed=spec.seed,
        block_tokens=spec.trace_block_tokens,
    )
    load = replace(load, max_concurrency=spec.max_concurrency, client=spec.client, network=network)
    return _with_clients(load, spec)


def _with_clients(load: Workload, spec: WorkloadSpec) -> Workload:
    """Returns the workload with whom each request comes from, where that matters.

    All turns of a session come from one client. Raises UserError where there is none to be known.
    """
    if spec.client_max_in_flight is None:
        return load
    if spec.num_clients is not None:
        owner = load.session if load.session is not None else np.arange(len(load))
        drawn = stream(spec.seed, "clients").integers(spec.num_clients, size=int(owner.max()) + 1)
        return replace(load, clients=drawn[owner].astype(np.int64)).check()
    if load.session is None:
        raise UserError(
            "requests do not say which client they come from",
            where="client_max_in_flight",
            hint="give num_clients, or sessions: num_turns, or a trace with session_id",
        )
    return replace(load, clients=load.session).check()
