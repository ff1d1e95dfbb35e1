"""Under SGLang's rules too, a leaping engine gives every token a stepping engine's time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.metrics import token_gaps_s
from dynosim.sim.workload.columns import Workload
from frontends import FRONTENDS
from test_leap import TIMERS, both
from workloads import workloads


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSpec:
    """Draws engines by SGLang's rules, most of them short of blocks."""
    block_size = draw(st.sampled_from([1, 16]))
    tokens = draw(st.sampled_from([544, 640, 1024, 6400]))
    return ClusterSpec(
        timer=draw(st.sampled_from(TIMERS)),
        limits=EngineLimits(
            scheduler="sglang",
            max_num_seqs=draw(st.integers(1, 8)),
            max_num_batched_tokens=draw(st.sampled_from([16, 64, 256, 2048])),
            block_size=block_size,
            enable_prefix_caching=draw(st.booleans()),
            scheduling_policy=draw(st.sampled_from(["fcfs", "lpm", "dfs_weight", "lof"])),
            enable_mixed_chunk=draw(st.sampled_from([False, False, True])),
            async_scheduling=draw(st.booleans()),
            schedule_conservativeness=draw(st.sampled_from([0.0, 0.3, 1.0])),
            scheduler_recv_interval=draw(st.sampled_from([1, 1, 3, 30])),
        ),
        num_blocks=tokens // block_size,
        max_model_len=10_000,
        replicas=draw(st.integers(1, 3)),
        routing=RouterOptions(
            router=draw(st.sampled_from(["round_robin", "random", "least_outstanding"]))
        ),
        frontend_s=draw(st.sampled_from([0.0, 0.0021])),
        frontend=draw(st.sampled_from(FRONTENDS)),
    )


def open_or_single(spec: ClusterSpec, load: Workload) -> ClusterSpec:
    # In a closed loop, replicas in lockstep feed each other: at the same instant, up to rounding,
    # which decides whether a request is still in time for the next step.
    return spec if load.max_concurrency is None else replace(spec, replicas=1)


@settings(max_examples=200, deadline=None)
@given(load=workloads(), spec=clusters())
def test_leap_equals_step(load: Workload, spec: ClusterSpec) -> None:
    both(open_or_single(spec, load), load, seed=7)


@settings(max_examples=80, deadline=None)
@given(load=workloads(), spec=clusters())
def test_gaps_between_tokens_span_the_steps_that_decodes_sit_out(
    load: Workload, spec: ClusterSpec
) -> None:
    result = run_cluster(open_or_single(spec, load), load, seed=7)
    times_s = [result.token_times_s(i) for i in np.flatnonzero(result.completed)]
    gaps_s = np.concatenate([np.diff(t) for t in times_s])
    assert np.all(gaps_s > 0)
    counted = token_gaps_s(result)
    assert counted.total == len(gaps_s)
    if len(gaps_s):
        np.testing.assert_allclose(counted.mean_std(), [gaps_s.mean(), gaps_s.std()], atol=1e-9)
        for q in (0.0, 0.3, 0.5, 0.9, 0.99, 1.0):
            np.testing.assert_allclose(counted.quantile(q), np.quantile(gaps_s, q), atol=1e-9)
