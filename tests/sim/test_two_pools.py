"""Deployments with a prefill pool: what they cost, when they pay, and how they are refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.search.estimate.estimate import estimate
from dynosim.sim.bottleneck.report import bottleneck
from dynosim.sim.bottleneck.what_if import what_if
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics
from dynosim.sim.result_files import bench_document, request_columns
from dynosim.sim.simulate import simulate
from dynosim.sim.timeline.series import series
from dynosim.sim.timeline.timeline import timeline
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec

PLAIN = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100_sxm"}
LIMITS = {"ttft": 500.0, "tpot": 12.0}


def load(rate: float, prompt: int = 3000, answer: int = 150, n: int = 250) -> Workload:
    return build_workload(
        WorkloadSpec(
            random_input_len=prompt,
            random_output_len=answer,
            random_range_ratio=0.3,
            request_rate=rate,
            num_prompts=n,
        )
    )


def run(workload: Workload, **fields: Any) -> Metrics:
    return simulate(Deployment(**(PLAIN | fields)), workload).metrics(LIMITS)


# --- when it pays, and when not ---------------------------------------------------------------


def test_decodes_are_no_longer_held_up_by_prompts():
    """What vLLM's own documentation promises of it: control over the tail of ITL."""
    busy = load(20)
    together = run(busy, replicas=4)
    apart = run(busy, replicas=1, prefill_replicas=3)
    assert apart["p99_itl_ms"] < together["p99_itl_ms"] / 4
    assert apart["p99_tpot_ms"] < together["p99_tpot_ms"]


def test_more_requests_keep_a_tight_tpot():
    """DistServe's claim (OSDI 2024): goodput per GPU rises where both limits bind."""
    busy = load(22)
    together = run(busy, replicas=4)
    apart = run(busy, replicas=2, prefill_replicas=2)
    assert apart["slo_attainment"] > 0.9 > together["slo_attainment"] + 0.2


def test_short_prompts_at_low_load_only_pay_the_way():
    quiet = load(2, prompt=200, answer=200)
    together, apart = run(quiet, replicas=2), run(quiet, replicas=1, prefill_replicas=1)
    assert apart["mean_ttft_ms"] > together["mean_ttft_ms"] + 10
    assert apart["mean_tpot_ms"] >= together["mean_tpot_ms"]


def test_a_pool_too_small_for_the_prompts_is_the_bottleneck():
    busy = load(20)
    starved = run(busy, replicas=3, prefill_replicas=1)
    assert starved["request_throughput"] < 0.85 * run(busy, replicas=4)["request_throughput"]
    assert starved["prefill_busy_share"] > 0.95


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_a_free_wire_leaves_what_the_engines_do(backend: str):
    alone = load(0.02, n=3)
    apart = {"replicas": 1, "prefill_replicas": 1, "kv_transfer_overlap": "none"}
    free = {"kv_transfer_bandwidth_gb_s": 1e9, "kv_transfer_latency_ms": 0.0}
    one = simulate(Deployment(**PLAIN, backend=backend), alone).result
    two = simulate(Deployment(**(PLAIN | apart | free), backend=backend), alone).result
    late_s = two.first_token_s - one.first_token_s
    step_s = float((one.finish_s - one.first_token_s).max()) / 100
    if backend == "vllm":
        # The last token of the prompt is computed again.
        assert (late_s > 0.3 * step_s).all()
    assert (late_s < 1.5 * step_s).all()
    assert (late_s > -1e-9).all()


def test_a_slower_wire_is_never_better():
    workload = load(6, n=120)
    runs = [
        run(workload, replicas=1, prefill_replicas=2, kv_transfer_bandwidth_gb_s=width)
        for width in (1000.0, 10.0, 3.0, 1.0)
    ]
    for name in ("mean_ttft_ms", "mean_transfer_ms", "link_busy_share"):
        assert all(fast[name] <= slow[name] * 1.001 for fast, slow in pairwise(runs)), name


def test_chunks_sent_early_come_early():
    long = load(1, prompt=20_000, n=20)
    times = [
        run(
            long,
            prefill_replicas=1,
            kv_transfer_bandwidth_gb_s=10.0,
            kv_transfer_overlap=overlap,
            prefill_max_num_batched_tokens=4096,
        )["mean_transfer_ms"]
        for overlap in ("none", "chunk", "layer")
    ]
    assert times[0] > 2 * times[1] > 2 * times[2]


# --- accounting -------------------------------------------------------------------------------


def test_gpus_and_prices_of_both_pools_count():
    deployment = Deployment(
        **PLAIN,
        replicas=3,
        prefill_replicas=2,
        prefill_gpu="h200_sxm",
        prefill_tensor_parallel_size=2,
    )
    assert (deployment.num_gpus, deployment.num_prefill_gpus) == (7, 4)
    simulation = simulate(deployment, load(2, n=20))
    prices = [
        pool.engine.gpu.cloud_price_usd_hour for pool in (simulation.decode, simulation.prefill)
    ]
    assert None not in prices
    assert simulation.metrics()["usd_per_hour"] == pytest.approx(3 * prices[0] + 4 * prices[1])


def test_result_files_tell_of_both_pools():
    simulation = simulate(Deployment(**PLAIN, prefill_replicas=1), load(2, n=20))
    document = bench_document(simulation, simulation.metrics(), seed=0)["dynosim"]
    assert isinstance(document, dict)
    assert document["prefill"]["gpu"] == "h100_sxm"
    assert {link["name"] for link in document["links"]} == {"prefill 0", "decode 0"}
    columns = request_columns(simulation.result)
    assert (columns["prefill_replica"] == 0).all()
    assert (columns["transfer_ms"] > 0).all()


def test_data_parallel_ranks_that_share_experts_may_be_either_pool():
    deployment = Deployment(
        model="Qwen/Qwen3-30B-A3B",
        gpu="h100_sxm",
        data_parallel_size=2,
        enable_expert_parallel=True,
        prefill_replicas=1,
    )
    for backend in ("vllm", "sglang"):
        metrics = simulate(
            Deployment(**(vars(deployment) | {"backend": backend})), load(4, n=40)
        ).metrics()
        assert metrics["completed"] == 40


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"prefill_gpu": "h1000"}, "prefill_gpu"),
        ({"prefill_gpu": "t4"}, "prefill pool: memory"),
        ({"prefill_router": "nearest"}, ""),
        ({"kv_transfer_fabric": "nvlink", "gpu": "l40s"}, "kv_transfer_fabric"),
        ({"kv_transfer_bandwidth_gb_s": -3.0}, "kv_transfer_bandwidth_gb_s"),
        ({"backend": "static"}, "prefill_replicas"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(fields: dict[str, Any], where: str):
    with pytest.raises(UserError) as refused:
        simulate(Deployment(**(PLAIN | {"prefill_replicas": 1} | fields)), load(1, n=2))
    assert refused.value.where.startswith(where)


def test_options_without_a_pool_are_known():
    deployment = Deployment(**PLAIN, prefill_tensor_parallel_size=2, local_prefill_below_tokens=9)
    assert deployment.idle_fields == ("prefill_tensor_parallel_size", "local_prefill_below_tokens")
    assert not Deployment(**PLAIN, prefill_replicas=1, prefill_max_num_seqs=4).idle_fields


# --- estimates --------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [6.0, 14.0])
@pytest.mark.parametrize("backend", ["vllm", "sglang"])
def test_the_estimate_of_two_pools_is_near_the_simulation(rate: float, backend: str):
    workload = load(rate, n=500)
    deployment = Deployment(**PLAIN, backend=backend, prefill_replicas=2)
    found = simulate(deployment, workload).metrics()
    guess = estimate([deployment], workload)
    assert guess.use[0] < 1.0
    for name, tolerance in (
        ("mean_tpot_ms", 0.15),
        ("request_throughput", 0.15),
        ("mean_ttft_ms", 0.4),
    ):
        assert guess.metrics[name][0] == pytest.approx(found[name], rel=tolerance), name


def test_a_starved_pool_is_estimated_as_overloaded():
    deployment = Deployment(**PLAIN, replicas=3, prefill_replicas=1)
    assert estimate([deployment], load(30)).use[0] > 1.2


# --- pools that scale -------------------------------------------------------------------------

RAMP = WorkloadSpec(
    random_input_len=3000,
    random_output_len=150,
    random_range_ratio=0.3,
    request_rates="0:4, 30:30, 90:4",
    num_prompts=1200,
)
SCALED = {
    "prefill_replicas": 1,
    "prefill_gpu": "h200_sxm",
    "autoscaler": "target_tracking",
    "autoscaler_metric": "kv_use",
    "autoscaler_target": 0.4,
    "max_replicas": 3,
    "prefill_autoscaler": "keda",
    "prefill_autoscaler_metric": "queue",
    "prefill_autoscaler_target": 4.0,
    "prefill_max_replicas": 4,
    "autoscaler_interval_s": 5.0,
    "autoscaler_down_window_s": 30.0,
    "startup_s": 10.0,
}


def test_each_pools_gpus_are_paid_for_while_they_are_held():
    deployment = Deployment(**(PLAIN | SCALED))
    simulation = simulate(deployment, build_workload(RAMP))
    found = simulation.metrics()
    assert found["completed"] == 1200
    assert found["replicas_max"] <= 3
    assert 1 < found["prefill_replicas_max"] <= 4
    decode_hours = found["gpu_hours"] - found["prefill_gpu_hours"]
    prices = [p.engine.gpu.cloud_price_usd_hour for p in (simulation.decode, simulation.prefill)]
    assert None not in prices
    expected = decode_hours * prices[0] + found["prefill_gpu_hours"] * prices[1]
    assert found["usd_total"] == pytest.approx(expected)
    assert simulation.result.scaling is not None
    hours = simulation.result.scaling.end_s / 3600
    assert found["usd_per_hour"] == pytest.approx(expected / hours)
    assert found["mean_gpus"] == found["num_gpus"] == pytest.approx(found["gpu_hours"] / hours)
    assert found["mean_gpus"] < deployment.num_gpus


def test_a_budget_counts_what_both_autoscalers_may_ask_for():
    wide = Deployment(**(PLAIN | SCALED), prefill_tensor_parallel_size=2, prefill_warm_replicas=1)
    assert (wide.num_prefill_gpus, wide.num_gpus) == ((4 + 1) * 2, (4 + 1) * 2 + 3)
    fixed = Deployment(**(PLAIN | SCALED | {"prefill_autoscaler": "none", "replicas": 2}))
    assert (fixed.num_prefill_gpus, fixed.num_gpus) == (1, 1 + 3)


def test_a_prefill_pool_without_options_of_its_own_is_scaled_as_the_other():
    own = {k: v for k, v in SCALED.items() if not k.startswith("prefill_autoscaler")}
    pool = Deployment(**(PLAIN | own)).prefill_pool
    assert pool is not None
    assert (pool.autoscaler, pool.autoscaler_metric, pool.max_replicas) == (
        "target_tracking",
        "kv_use",
        4,
    )


def test_series_and_timeline_have_both_pools():
    simulation = simulate(Deployment(**(PLAIN | SCALED)), build_workload(RAMP))
    found = series(simulation.result, 5.0)
    assert (len(found.engines), len(found.prefill_engines)) == (3, 4)
    prompts = sum(one["vllm:prompt_tokens_total"][-1] for one in found.prefill_engines)
    assert prompts == simulation.result.workload.input_tokens.sum()
    events = timeline(simulation.result, None).events
    tracks = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    for name, most in (("decode pool", "replicas_max"), ("prefill pool", "prefill_replicas_max")):
        ready = [
            e["args"]["value"]
            for e in events
            if e["pid"] == tracks[name] and e["name"] == "replicas ready"
        ]
        assert max(ready) == simulation.metrics()[most]


def test_what_bound_a_pool_counts_when_its_replicas_were_away():
    simulation = simulate(Deployment(**(PLAIN | SCALED)), build_workload(RAMP))
    bound = bottleneck(simulation)
    assert bound is not None
    assert bound.prefill is not None
    for found in (bound.attribution, bound.prefill):
        assert sum(found.shares.values()) == pytest.approx(1.0)
        assert found.shares["replica off"] > 0.1


def test_what_if_asks_with_the_autoscalers():
    simulation = simulate(Deployment(**(PLAIN | SCALED)), load(4, n=60))
    found = {one.resource: one for one in what_if(simulation)}
    assert "KV transfer links" in found
    assert not any("replicas" in name for name in found)
    faster = found["prefill: compute"]
    assert faster.changes["mean_ttft_ms"] < 0.0


def test_a_start_is_of_each_pools_own_engine():
    patient = WorkloadSpec(num_prompts=20, request_rate=1.0, client_retries=3)
    deployment = Deployment(
        **PLAIN,
        prefill_replicas=1,
        prefill_startup="snapshot",
        failures="crash@1:0, crash@1:prefill0",
    )
    found = simulate(deployment, build_workload(patient)).metrics()
    assert (found["starts"], found["prefill_starts"]) == (1, 1)
    assert (found["crashes"], found["prefill_crashes"]) == (1, 1)
    assert found["prefill_mean_start_s"] < found["mean_start_s"]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"prefill_autoscaler_target": None, "autoscaler_target": None}, "autoscaler_target"),
        ({"prefill_autoscaler": "nobody"}, "prefill pool"),
        ({"prefill_min_replicas": 9}, "prefill_min_replicas"),
        ({"prefill_autoscaler": "none", "prefill_max_replicas": 3}, "prefill_max_replicas"),
        ({"failures": "crash@1:prefill7"}, "prefill pool: failures"),
        ({"failures": "crash@1:prefill0", "prefill_replicas": 0}, "failures"),
        ({"autoscaler": "threshold", "autoscaler_metric": "slo_attainment"}, "autoscaler_slo_tpot"),
        (
            {"prefill_autoscaler": "threshold", "prefill_autoscaler_metric": "slo_attainment"},
            "autoscaler_slo_ttft_ms",
        ),
    ],
)
def test_options_of_a_pool_are_refused_by_its_keys(fields: dict[str, Any], where: str):
    with pytest.raises(UserError) as refused:
        simulate(Deployment(**(PLAIN | SCALED | fields)), load(1, n=2))
    assert refused.value.where.startswith(where)


def test_prompts_too_long_for_the_slo_alone_are_infeasible_with_any_number_of_replicas():
    limits = {"autoscaler_slo_ttft_ms": 20.0}
    simulation = simulate(Deployment(**(PLAIN | SCALED | limits)), load(1, n=20))
    assert any("infeasible" in warning for warning in simulation.warnings)


# --- topologies that cannot be -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"tensor_parallel_size": 16}, "tensor_parallel_size"),
        (
            {"prefill_replicas": 1, "prefill_tensor_parallel_size": 16},
            "prefill_tensor_parallel_size",
        ),
        (
            {"prefill_replicas": 1, "gpu": "l40s", "kv_transfer_fabric": "nvlink"},
            "kv_transfer_fabric",
        ),
        (
            {"prefill_replicas": 8, "replicas": 8, "kv_transfer_fabric": "nvlink"},
            "kv_transfer_fabric",
        ),
        (
            {"prefill_replicas": 1, "kv_transfer_bandwidth_gb_s": -1.0},
            "kv_transfer_bandwidth_gb_s",
        ),
        ({"prefill_replicas": 1, "kv_transfer_latency_ms": -1.0}, "kv_transfer_latency_ms"),
    ],
)
def test_a_topology_that_cannot_be_is_refused_with_its_key(options: dict[str, Any], where: str):
    deployment = Deployment(**(PLAIN | {"max_model_len": 8192} | options))
    with pytest.raises(UserError) as refused:
        simulate(deployment, build_workload(WorkloadSpec(num_prompts=1)))
    assert refused.value.where == where


def test_a_group_over_several_nodes_is_for_whoever_asks_for_it():
    across = Deployment(
        model="meta-llama/Llama-3.3-70B-Instruct",
        gpu="h100_sxm",
        tensor_parallel_size=16,
        tensor_parallel_across_nodes=True,
    )
    inside = replace(across, tensor_parallel_size=8)
    load = build_workload(WorkloadSpec(num_prompts=1))
    two, one = (simulate(d, load).metrics()["mean_tpot_ms"] for d in (across, inside))
    # Twice the GPUs, and far from twice as fast: all of a layer's sums go over the network.
    assert two > 0.7 * one
