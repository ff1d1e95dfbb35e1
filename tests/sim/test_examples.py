"""Every example of one deployment runs, and what it says of itself is so.

Little's law holds on each, as ``conftest`` asserts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynosim.question import Question, read_question
from dynosim.sim.bottleneck.report import bottleneck
from dynosim.sim.metrics import Metrics
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = (
    "autoscaling",
    "bottleneck",
    "clients",
    "disaggregation",
    "host",
    "kv_tiers",
    "routing",
)
FILES = sorted(
    path for name in FOLDERS for path in (EXAMPLES / name).glob("*.yaml") if path.stem != "space"
)
AT_MOST = 4000
"""Requests of an example that are run: an hour of a fleet takes a minute."""


def ask(name: str, monkeypatch: pytest.MonkeyPatch) -> Question:
    file = EXAMPLES / f"{name}.yaml"
    monkeypatch.chdir(file.parent)
    return read_question(file.name, {}, ())


def metrics(question: Question, **change: Any) -> Metrics:
    """Returns the metrics of an example with some options of deployment or workload changed."""
    deployment, workload = question.deployment, question.workload
    for name, value in change.items():
        if hasattr(deployment, name):
            deployment = replace(deployment, **{name: value})
        else:
            workload = replace(workload, **{name: value})
    return simulate(deployment, build_workload(workload), seed=question.seed).metrics(
        question.goodput_ms
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_what_bound_an_example_is_told_for_all_of_its_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = ask(f"{file.parent.name}/{file.stem}", monkeypatch)
    load = question.workload
    if (load.num_prompts or 0) > AT_MOST:
        load = replace(load, num_prompts=AT_MOST)
    found = bottleneck(simulate(question.deployment, build_workload(load), seed=question.seed))
    assert found is not None
    assert sum(found.bound_by.values()) == pytest.approx(1.0, abs=1e-6)
    assert sum(found.steps.values()) == pytest.approx(1.0, abs=1e-6)


def test_every_folder_of_single_deployments_is_among_them() -> None:
    spaces = {"claims", "plan", "questions", "quickstart", "traces", "verify_cpu"}
    assert {p.name for p in EXAMPLES.iterdir() if p.is_dir()} == spaces | set(FOLDERS)


def test_affinity_loses_on_skewed_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    question = ask("routing/prefix_hash", monkeypatch)
    bounded, blind, unbounded = (
        metrics(question, **change)
        for change in (
            {},
            {"router": "least_outstanding"},
            {"router_load_bound": float("inf")},
        )
    )
    # It finds the most, and is the slowest by far.
    assert unbounded["prefix_hit_rate"] > blind["prefix_hit_rate"]
    assert unbounded["mean_ttft_ms"] > 10 * blind["mean_ttft_ms"]
    assert bounded["mean_ttft_ms"] < blind["mean_ttft_ms"]


def test_a_retry_storm_outlives_its_spike(monkeypatch: pytest.MonkeyPatch) -> None:
    question = ask("clients/retry_storm", monkeypatch)
    storm, shed = (
        metrics(question, **change)
        for change in ({}, {"router_max_waiting": 20, "router_overload": "shed"})
    )
    # Nine of ten requests come when there is no spike, or are not answered for want of it.
    assert storm["slo_attainment"] < 0.15
    assert shed["slo_attainment"] > 0.6
    assert storm["wasted_output_tokens"] > 20 * shed["wasted_output_tokens"]


def test_too_few_api_servers_are_named_and_both_remedies_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = ask("host/few_api_servers", monkeypatch)
    one, four, grouped = (
        metrics(question, **change)
        for change in ({}, {"api_server_count": 4}, {"stream_interval": 8})
    )
    run = simulate(question.deployment, build_workload(question.workload))
    found = bottleneck(run)
    assert found is not None
    assert max(found.bound_by, key=lambda name: found.bound_by[name]) == "API servers"
    assert four["request_throughput"] > 1.3 * one["request_throughput"]
    assert grouped["request_throughput"] > 1.3 * one["request_throughput"]


def test_a_limit_a_client_moves_the_wait_from_the_server_to_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = ask("clients/limited", monkeypatch)
    limited, free = metrics(question), metrics(question, client_max_in_flight=64)
    assert limited["p99_ttft_ms"] < free["p99_ttft_ms"] / 2
    assert limited["mean_client_wait_ms"] > 10 * limited["mean_ttft_ms"]


def test_shared_storage_finds_what_other_replicas_have_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = ask("kv_tiers/shared_storage", monkeypatch)
    shared, own = metrics(question), metrics(question, kv_shared_gib=0.0)
    assert shared["prefix_hit_rate"] > own["prefix_hit_rate"] + 0.1
    assert shared["mean_ttft_ms"] < 0.85 * own["mean_ttft_ms"]


def test_whoever_foresees_a_rise_is_ready_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reactive = metrics(ask("autoscaling/keda", monkeypatch))
    predictive = metrics(ask("autoscaling/predictive", monkeypatch))
    scheduled = metrics(ask("autoscaling/scheduled", monkeypatch))
    fixed = metrics(ask("autoscaling/day", monkeypatch))
    assert reactive["slo_attainment"] < 0.97 < predictive["slo_attainment"]
    assert scheduled["slo_attainment"] > 0.99
    # Each needs less than as many replicas as the peak does.
    hours = fixed["duration"] / 3600 * 4
    assert max(m["gpu_hours"] for m in (reactive, predictive, scheduled)) < hours
