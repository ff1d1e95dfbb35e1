"""TensorRT-LLM's scheduler: leaping equals stepping, nothing is lost, nothing waits for ever."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.workload.columns import Workload
from test_leap import TIMERS, both
from workloads import workloads

POLICIES = ["guaranteed_no_evict", "max_utilization"]


def limits(
    policy: str,
    max_num_seqs: int,
    budget: int,
    caching: bool = True,
    chunked: bool = True,
    is_async: bool = False,
) -> EngineLimits:
    return EngineLimits(
        scheduler="trtllm",
        scheduling_policy=policy,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        enable_chunked_prefill=chunked,
        async_scheduling=is_async,
    )


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=100, deadline=None)
@given(
    load=workloads(),
    timer=st.sampled_from(TIMERS),
    num_blocks=st.sampled_from([34, 40, 64, 400]),
    max_num_seqs=st.integers(1, 8),
    # Budgets below a KV block (16), and such that decodes leave less than one.
    budget=st.sampled_from([5, 16, 20, 64, 257, 2048]),
    caching=st.booleans(),
    replicas=st.integers(1, 3),
    router=st.sampled_from(["round_robin", "random", "least_outstanding"]),
    is_async=st.booleans(),
    wait=st.sampled_from([(0, 0.0), (3, 0.9), (20, 0.4)]),
)
def test_leap_equals_step(
    policy: str,
    load: Workload,
    timer: AffineTimer,
    num_blocks: int,
    max_num_seqs: int,
    budget: int,
    caching: bool,
    replicas: int,
    router: str,
    is_async: bool,
    wait: tuple[int, float],
) -> None:
    plain = limits(policy, max_num_seqs, budget, caching, is_async=is_async)
    spec = ClusterSpec(
        timer=timer,
        limits=replace(
            plain, batch_wait_timeout_iters=wait[0], batch_wait_max_tokens_ratio=wait[1]
        ),
        num_blocks=num_blocks,
        max_model_len=10_000,
        # See tests/sim/test_leap.py on closed loops.
        replicas=replicas if load.max_concurrency is None else 1,
        routing=RouterOptions(router=router),
    )
    both(spec, load, seed=7)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=50, deadline=None)
@given(load=workloads(longest=200), max_num_seqs=st.integers(1, 8), num_blocks=st.integers(20, 60))
def test_leap_equals_step_without_chunked_context(
    policy: str, load: Workload, max_num_seqs: int, num_blocks: int
) -> None:
    # A paused request computes its answer so far again, with its prompt, whole.
    spec = ClusterSpec(
        timer=TIMERS[0],
        limits=limits(policy, max_num_seqs, 320, chunked=False),
        num_blocks=num_blocks,
        max_model_len=10_000,
    )
    both(spec, load)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(load=workloads(block=48), num_blocks=st.sampled_from([34, 50, 400]))
def test_leap_equals_step_on_prefix_blocks_of_several_kv_blocks(
    policy: str, load: Workload, num_blocks: int
) -> None:
    spec = ClusterSpec(
        timer=TIMERS[0],
        limits=limits(policy, 8, 64),
        num_blocks=num_blocks,
        max_model_len=10_000,
    )
    both(spec, load)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None)
@given(
    load=workloads(),
    num_blocks=st.sampled_from([34, 50, 400]),
    seqs=st.integers(1, 8),
    is_async=st.booleans(),
)
def test_every_request_ends_once_and_the_guaranteed_ones_are_never_paused(
    policy: str, load: Workload, num_blocks: int, seqs: int, is_async: bool
) -> None:
    # Tokens and blocks are checked by run_cluster itself at the end of every run.
    spec = ClusterSpec(
        timer=TIMERS[0],
        limits=limits(policy, seqs, 64, is_async=is_async),
        num_blocks=num_blocks,
        max_model_len=10_000,
    )
    result = run_cluster(spec, load)
    assert result.completed.all()
    assert np.all(result.cached_tokens < load.input_tokens)
    assert np.all(result.replicas[0].steps.running <= seqs)
    if policy == "guaranteed_no_evict":
        assert not result.preemptions.any()
