"""Replicas that run apart from each other find what replicas on one clock find."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.routers.random import RandomChoice
from dynosim.sim.cluster.routers.round_robin import RoundRobin
from dynosim.sim.cluster.unseen import Unseen
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.results import RunResult
from dynosim.sim.workload.columns import Workload
from frontends import FRONTENDS
from workloads import workloads


def run(spec: ClusterSpec, load: Workload, *, apart: bool) -> RunResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundRobin, "is_blind", apart)
        patch.setattr(RandomChoice, "is_blind", apart)
        return run_cluster(spec, load, seed=3)


@settings(max_examples=60, deadline=None)
@given(
    load=workloads().filter(lambda load: load.max_concurrency is None),
    num_blocks=st.sampled_from([34, 400]),
    replicas=st.integers(1, 3),
    router=st.sampled_from(["round_robin", "random"]),
    frontend_s=st.sampled_from([0.0, 0.0021]),
    frontend=st.sampled_from(FRONTENDS),
    max_model_len=st.sampled_from([300, 10_000]),
)
def test_apart_equals_together(
    load: Workload,
    num_blocks: int,
    replicas: int,
    router: str,
    frontend_s: float,
    frontend: Frontend,
    max_model_len: int,
) -> None:
    spec = ClusterSpec(
        timer=AffineTimer(),
        limits=EngineLimits(max_num_seqs=4, max_num_batched_tokens=64),
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        replicas=replicas,
        routing=RouterOptions(router=router),
        frontend_s=frontend_s,
        frontend=frontend,
    )
    apart, together = run(spec, load, apart=True), run(spec, load, apart=False)
    for column in ("replica", "cached_tokens", "preemptions"):
        assert np.array_equal(getattr(apart, column), getattr(together, column)), column
    for column in ("sent_s", "scheduled_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(
            getattr(apart, column), getattr(together, column), rtol=0, atol=1e-9, err_msg=column
        )


def test_a_router_that_calls_itself_blind_must_not_look() -> None:
    with pytest.raises(AssertionError, match="looked"):
        _ = Unseen(0).outstanding
