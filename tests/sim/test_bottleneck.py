"""What a run was bound by: hand-computed, summing to the whole, the same leaping and stepping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.op_bounds import BOUNDS, MEMORY
from dynosim.hardware_models.timing.step_parts import PARTS, StepParts, StepShapes
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.sim.bottleneck.attribution import Attribution, attribute
from dynosim.sim.bottleneck.intervals import Intervals, union
from dynosim.sim.bottleneck.report import bottleneck
from dynosim.sim.bottleneck.what_if import what_if
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.frontend import IDLE, Frontend
from dynosim.sim.deployment import Deployment
from dynosim.sim.engine import holds
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.simulate import Simulation, simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec
from workloads import workload, workloads

LLAMA = Deployment(model="meta-llama/Llama-3.1-8B-Instruct", gpu="h100_sxm", backend="vllm")


class AllMemory:
    """Says of every step that it was bound by memory bandwidth."""

    def seconds(self, shapes: StepShapes, /) -> FloatArray:
        parts = np.zeros((len(PARTS), len(shapes.seconds)))
        parts[MEMORY] = shapes.seconds
        return parts


def attributed(spec: ClusterSpec, load: Workload) -> Attribution:
    found = attribute(run_cluster(spec, load), AllMemory(), spec.limits, spec.frontend)
    assert found is not None
    return found


def cluster(num_blocks: int = 1000, frontend: Frontend = IDLE, **limits: object) -> ClusterSpec:
    values = {"max_num_seqs": 8, "max_num_batched_tokens": 512} | limits
    return ClusterSpec(
        timer=AffineTimer(0.01, 0.0, 0.0, 0.0, 0.0),
        limits=EngineLimits(**values),  # type: ignore[arg-type]
        num_blocks=num_blocks,
        max_model_len=10_000,
        frontend=frontend,
    )


# --- what kept requests out, by hand: every step takes 10 ms -----------------------------------


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "trtllm"])
def test_a_request_waits_for_the_only_slot(scheduler: str) -> None:
    spec = cluster(max_num_seqs=1, scheduler=scheduler)
    found = attributed(spec, workload([0.0, 0.0], [16, 16], [5, 5]))
    assert found.shares == pytest.approx({"batch slots": 0.5, "memory bandwidth": 0.5})
    assert found.waiting_request_s[holds.SLOTS] == pytest.approx(0.05)


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "trtllm"])
def test_a_request_waits_for_the_tokens_of_one_step(scheduler: str) -> None:
    spec = cluster(max_num_batched_tokens=32, scheduler=scheduler)
    # 32 of 32 tokens in the first step, so that the second prompt enters with the second.
    found = attributed(spec, workload([0.0, 0.0], [32, 16], [1, 1]))
    assert found.shares == pytest.approx({"token budget": 0.5, "memory bandwidth": 0.5})


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "trtllm"])
def test_a_request_waits_for_blocks(scheduler: str) -> None:
    # Each needs 4 blocks for its prompt, and the pool has 6.
    spec = cluster(num_blocks=6, scheduler=scheduler, enable_prefix_caching=False)
    found = attributed(spec, workload([0.0, 0.0], [64, 64], [4, 4]))
    assert found.shares == pytest.approx({"KV blocks": 0.5, "memory bandwidth": 0.5})


def test_a_static_batch_takes_nobody_in() -> None:
    spec = cluster(scheduler="static")
    found = attributed(spec, workload([0.0, 0.005], [16, 16], [5, 5]))
    # The second arrives in the first of five steps and is seen at its end.
    assert found.shares == pytest.approx({"batch in progress": 0.4, "memory bandwidth": 0.6})


def test_an_engine_without_work_is_bound_by_nothing() -> None:
    found = attributed(cluster(), workload([0.0, 0.30], [16, 16], [10, 10]))
    assert found.shares == pytest.approx({"memory bandwidth": 0.5, "no requests": 0.5})


def test_slow_api_servers_are_told() -> None:
    # Ten requests at once take 0.1 s each to read, the engine 10 ms for one's only token.
    found = attributed(
        cluster(frontend=Frontend(request_s=0.1)), workload([0.0] * 10, [16] * 10, [1] * 10)
    )
    assert found.shares == pytest.approx(
        {"API servers": 0.9 - 0.09, "memory bandwidth": 0.1, "no requests": 0.1}, abs=0.02
    )
    # Or 0.1 s to write each of twenty tokens that the engine makes in 10 ms.
    found = attributed(cluster(frontend=Frontend(output_s=0.1)), workload([0.0], [16], [20]))
    assert found.shares["API servers"] > 0.09


# --- sums --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    load=workloads(),
    scheduler=st.sampled_from(["vllm", "sglang", "trtllm", "static"]),
    num_blocks=st.sampled_from([40, 400]),
    max_num_seqs=st.integers(1, 8),
)
def test_shares_sum_to_one_and_leaping_changes_none(
    load: Workload, scheduler: str, num_blocks: int, max_num_seqs: int
) -> None:
    limits = EngineLimits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=256,
        scheduler=scheduler,
        scheduling_policy="guaranteed_no_evict" if scheduler == "trtllm" else "fcfs",
    )
    spec = ClusterSpec(
        timer=AffineTimer(), limits=limits, num_blocks=num_blocks, max_model_len=10_000
    )
    leaping = attributed(spec, load)
    stepping = attributed(replace(spec, limits=replace(limits, max_run=1)), load)
    assert sum(leaping.shares.values()) == pytest.approx(1.0)
    assert leaping.shares == pytest.approx(stepping.shares, abs=1e-6)
    np.testing.assert_allclose(
        leaping.waiting_request_s, stepping.waiting_request_s, rtol=1e-6, atol=1e-9
    )


@settings(max_examples=40, deadline=None)
@given(load=workloads(), max_num_seqs=st.integers(1, 4), is_async=st.booleans())
def test_all_time_in_queues_has_a_cause(load: Workload, max_num_seqs: int, is_async: bool) -> None:
    spec = cluster(max_num_seqs=max_num_seqs, async_scheduling=is_async)
    result = run_cluster(spec, load)
    found = attribute(result, AllMemory(), spec.limits, IDLE)
    assert found is not None
    queued_s = (result.scheduled_s - result.arrived_s).sum()
    assert found.waiting_request_s.sum() == pytest.approx(queued_s, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    inputs=st.lists(st.integers(1, 200), min_size=1, max_size=12),
    max_num_seqs=st.integers(1, 4),
    budget=st.sampled_from([16, 64, 256]),
)
def test_those_there_from_the_first_wait_for_no_step_in_progress(
    inputs: list[int], max_num_seqs: int, budget: int
) -> None:
    # All arrive before the first step, and nobody is preempted.
    load = workload([0.0] * len(inputs), inputs, [7] * len(inputs))
    spec = cluster(max_num_seqs=max_num_seqs, max_num_batched_tokens=budget)
    result = run_cluster(spec, load)
    found = attribute(result, AllMemory(), spec.limits, IDLE)
    assert found is not None
    assert found.waiting_request_s[-1] == pytest.approx(0.0, abs=1e-9)


def test_intervals() -> None:
    found = union(np.array([5.0, 0.0, 1.0, 9.0]), np.array([6.0, 2.0, 3.0, 9.0]))
    assert found.start_s.tolist() == [0.0, 5.0]
    assert found.end_s.tolist() == [3.0, 6.0]
    gaps = found.gaps(-1.0, 8.0)
    assert list(zip(*map(list, gaps), strict=True)) == [(-1.0, 0.0), (3.0, 5.0), (6.0, 8.0)]
    assert found.within(Intervals(np.array([-1.0, 2.0]), np.array([1.0, 5.5]))).tolist() == [
        1.0,
        1.5,
    ]


# --- what steps are bound by -------------------------------------------------------------------


def engine(**fields: object) -> ResolvedEngine:
    return resolve_engine(replace(LLAMA, **fields))  # type: ignore[arg-type]


def shape(timer: StepTimer, *, prompt: int = 0, decodes: int = 0, context: int = 0) -> StepShapes:
    attention_s = timer.prefill_attention_s(prompt, 0) if prompt else 0.0
    logits = decodes + (prompt > 0)
    seconds = timer.step_s(prompt + decodes, logits, attention_s, decodes, context)
    return StepShapes(
        seconds=np.array([seconds]),
        prefill_tokens=np.array([prompt]),
        prefill_attention_s=np.array([attention_s]),
        num_decode=np.array([decodes]),
        num_logits=np.array([logits]),
        context_tokens=np.array([float(context)]),
    )


def split(resolved: ResolvedEngine, **what: int) -> dict[str, float]:
    timer = StepTimer.compile(resolved)
    parts = StepParts.compile(resolved).seconds(shape(timer, **what))[:, 0]
    return dict(zip(PARTS, (parts / parts.sum()).tolist(), strict=True))


def test_a_long_prompt_is_bound_by_arithmetic_and_a_decode_by_memory() -> None:
    assert split(engine(), prompt=8192)["compute"] > 0.85
    assert split(engine(), decodes=32, context=32 * 1000)["memory bandwidth"] > 0.9


def test_gpus_that_sum_over_links_wait_for_them() -> None:
    assert split(engine(), prompt=4096)["GPU links"] == 0.0
    assert 0.05 < split(engine(tensor_parallel_size=4), prompt=4096)["GPU links"] < 0.5


def test_eager_decodes_are_bound_by_launches() -> None:
    assert split(engine(enforce_eager=True), decodes=1, context=100)["kernel launches"] == 1.0


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("what", [{"prompt": 700}, {"decodes": 17, "context": 30_000}])
def test_parts_are_the_timers_own(backend: str, what: dict[str, int]) -> None:
    # Neither kind of step has kernels that do not just follow each other: nothing is stretched.
    resolved = engine(backend=backend)
    parts = StepParts.compile(resolved)
    shapes = shape(StepTimer.compile(resolved), **what)
    host_s = 0.0
    if not resolved.backend.asynchronous_scheduling:
        host_s = resolved.backend.host_step_s
        host_s += resolved.backend.host_per_sequence_s * float(shapes.num_logits[0])
    kernels_s = parts.seconds(shapes)[: len(BOUNDS)].sum()
    assert kernels_s == pytest.approx(shapes.seconds[0] - host_s)
    assert parts._kernels(shapes).sum() == pytest.approx(shapes.seconds[0] - host_s, rel=1e-9)


@pytest.mark.parametrize(
    "fields",
    [
        {"enable_chunked_prefill": True},
        {"pipeline_parallel_size": 2},
        {"tensor_parallel_size": 2, "backend": "sglang"},
        {"backend": "trtllm"},
    ],
)
def test_parts_sum_to_the_time_that_engines_were_busy(fields: dict[str, object]) -> None:
    simulation = _simulated(replace(LLAMA, **fields), request_rate=20.0)  # type: ignore[arg-type]
    found = bottleneck(simulation)
    assert found is not None
    busy_s = sum(float(log.steps.durations_s.sum()) for log in simulation.result.replicas)
    assert found.attribution.step_s.sum() == pytest.approx(busy_s)
    assert (found.attribution.step_s >= 0.0).all()
    for use in found.resources:
        assert min(use.busy_s, use.blocked_s, use.idle_s) >= -1e-9, use
        assert use.limiting_s <= use.busy_s + 1e-9, use
        assert 0.0 <= use.mean_use <= 1.0, use


# --- what if -----------------------------------------------------------------------------------


def _simulated(deployment: Deployment, **fields: object) -> Simulation:
    values = {"random_input_len": 512, "random_output_len": 128, "num_prompts": 150} | fields
    return simulate(deployment, build_workload(WorkloadSpec(**values)))  # type: ignore[arg-type]


def test_widening_what_binds_helps_and_widening_what_does_not_is_idle() -> None:
    bound = _simulated(LLAMA, max_concurrency=16)
    gains = {one.resource: one for one in what_if(bound)}
    # At 16 sequences weights are read over and over: at most 25 % more, at least half of that.
    assert 0.12 < gains["memory bandwidth"].capacity <= 0.25
    assert gains["memory bandwidth"].capacity > gains["compute"].capacity > 0.0
    assert gains["KV blocks"].capacity == gains["batch slots"].capacity == 0.0


def test_widening_the_pool_helps_where_blocks_keep_requests_out() -> None:
    tight = replace(LLAMA, gpu="l40s", max_model_len=4096)
    simulation = _simulated(
        tight,
        random_input_len=3000,
        random_output_len=900,
        num_prompts=120,
        request_rate=float("inf"),
    )
    found = bottleneck(simulation)
    assert found is not None
    assert next(iter(found.bound_by)) == "KV blocks"
    gains = {one.resource: one for one in what_if(simulation)}
    assert gains["KV blocks"].capacity > 0.02
    assert gains["KV blocks"].changes["mean_ttft_ms"] < 0.0
    assert gains["batch slots"].capacity == 0.0


def test_faster_arithmetic_shortens_prompts_only() -> None:
    simulation = _simulated(LLAMA, random_input_len=4096, random_output_len=1, request_rate=2.0)
    gains = {one.resource: one for one in what_if(simulation)}
    change = gains["compute"].changes["mean_ttft_ms"]
    assert -0.5 < change < -0.15
    assert abs(gains["memory bandwidth"].changes["mean_ttft_ms"]) < 0.05
