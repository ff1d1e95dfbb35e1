"""An engine that speculates gives the same token times leaping and stepping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.engine.drafting import Drafting
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.workload.columns import Workload
from speculative_timer import SpeculativeAffineTimer
from test_leap import both
from workloads import workload, workloads

draftings = st.builds(
    lambda rates, lookahead: Drafting(
        num_tokens=len(rates),
        acceptance=tuple(np.cumprod(rates).tolist()),
        lookahead_tokens=len(rates) if lookahead else 0,
    ),
    st.lists(st.sampled_from([0.0, 0.3, 0.8, 1.0]), min_size=1, max_size=5),
    st.booleans(),
)


def timer(drafting: Drafting, knee: int = 1 << 60) -> SpeculativeAffineTimer:
    return SpeculativeAffineTimer(query_tokens=drafting.query_tokens, knee=knee)


@settings(max_examples=150, deadline=None)
@given(
    load=workloads(),
    drafting=draftings,
    knee=st.sampled_from([2000, 1 << 60]),
    num_blocks=st.sampled_from([34, 40, 64, 400]),
    max_num_seqs=st.integers(1, 8),
    budget=st.sampled_from([16, 64, 257, 2048]),
    caching=st.booleans(),
    replicas=st.integers(1, 3),
    router=st.sampled_from(["round_robin", "random", "least_outstanding"]),
    policy=st.sampled_from(["fcfs", "priority"]),
    threshold=st.sampled_from([0, 0, 12, 100]),
)
def test_leap_equals_step(
    load: Workload,
    drafting: Drafting,
    knee: int,
    num_blocks: int,
    max_num_seqs: int,
    budget: int,
    caching: bool,
    replicas: int,
    router: str,
    policy: str,
    threshold: int,
) -> None:
    limits = EngineLimits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        scheduling_policy=policy,
        long_prefill_token_threshold=threshold,
        drafting=drafting,
    )
    spec = ClusterSpec(
        timer=timer(drafting, knee),
        limits=limits,
        num_blocks=num_blocks,
        max_model_len=10_000,
        replicas=replicas if load.max_concurrency is None else 1,
        routing=RouterOptions(router=router),
    )
    both(spec, load, seed=7)


@settings(max_examples=80, deadline=None)
@given(
    load=workloads(),
    drafting=draftings,
    num_blocks=st.sampled_from([34, 40, 64, 400]),
    max_num_seqs=st.integers(1, 8),
    budget=st.sampled_from([16, 64, 257, 2048]),
    caching=st.booleans(),
    policy=st.sampled_from(["guaranteed_no_evict", "max_utilization"]),
)
def test_leap_equals_step_for_trtllm(
    load: Workload,
    drafting: Drafting,
    num_blocks: int,
    max_num_seqs: int,
    budget: int,
    caching: bool,
    policy: str,
) -> None:
    limits = EngineLimits(
        scheduler="trtllm",
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        scheduling_policy=policy,
        drafting=drafting,
    )
    spec = ClusterSpec(
        timer=timer(drafting), limits=limits, num_blocks=num_blocks, max_model_len=10_000
    )
    both(spec, load, seed=7)


@settings(max_examples=60, deadline=None)
@given(
    load=workloads(), alone=st.integers(1, 8), together=st.integers(1, 8), seed=st.integers(0, 9)
)
def test_what_is_accepted_does_not_depend_on_who_runs_beside(
    load: Workload, alone: int, together: int, seed: int
) -> None:
    drafting = Drafting(num_tokens=3, acceptance=(0.7, 0.5, 0.35))
    found = []
    for max_num_seqs in (alone, together):
        limits = EngineLimits(
            max_num_seqs=max_num_seqs, max_num_batched_tokens=512, drafting=drafting
        )
        spec = ClusterSpec(
            timer=timer(drafting), limits=limits, num_blocks=4000, max_model_len=10_000
        )
        result = run_cluster(spec, load, seed)
        rows = result.replicas[0].verifications
        found.append(rows[np.lexsort(rows.T)])
        for i in range(len(load)):
            times = result.token_times_s(i)
            assert len(times) == load.output_tokens[i], "never more, never fewer"
            assert (np.diff(times) >= 0).all()
    assert np.array_equal(*found)


def test_an_arrival_inside_a_leap_enters_at_the_step_boundary_in_progress() -> None:
    # Every draft is accepted: 2 drafts, 3 tokens a step of 10 ms.
    drafting = Drafting(num_tokens=2, acceptance=(1.0, 1.0))
    clock = SpeculativeAffineTimer(
        query_tokens=3,
        base_s=0.010,
        per_token_s=0.0,
        per_pair_s=0.0,
        per_sequence_s=0.0,
        per_context_s=0.0,
    )
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=512, drafting=drafting)
    spec = ClusterSpec(timer=clock, limits=limits, num_blocks=64, max_model_len=1000)
    result = run_cluster(spec, workload([0.0, 0.045], [10, 10], [20, 3]))
    # One token with the prompt, then 3 a step; the last step is cut to the one that is missing.
    ends = [0.01, *np.repeat([0.02, 0.03, 0.04, 0.05, 0.06, 0.07], 3), 0.08]
    np.testing.assert_allclose(result.token_times_s(0), ends, atol=1e-12)
    assert result.scheduled_s[1] == pytest.approx(0.05)
    np.testing.assert_allclose(result.token_times_s(1), [0.06, 0.07, 0.07], atol=1e-12)


def test_leaps_spare_events() -> None:
    drafting = Drafting(num_tokens=3, acceptance=(0.7, 0.5, 0.35))
    limits = EngineLimits(max_num_seqs=8, max_num_batched_tokens=512, drafting=drafting)
    from dynosim.sim.engine.sequence import Sequence
    from dynosim.sim.engine.speculative_engine import SpeculativeEngine

    engine = SpeculativeEngine(timer(drafting), limits, num_blocks=1000)
    engine.waiting.append(Sequence(0, 100, 1000, []))
    runs, now_s = 0, 0.0
    while (end_s := engine.begin(now_s)) is not None:
        runs, now_s = runs + 1, end_s
        engine.end()
    assert runs == 2, "one prefill step, one run of verifications"
    assert 300 < engine.log.num_steps < 500
