"""The timeline is valid in the format's own terms, and shows what happened; series add up."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.results import RunResult
from dynosim.sim.timeline.event import STEPS
from dynosim.sim.timeline.series import COUNTERS, GAUGES, series, write_series
from dynosim.sim.timeline.timeline import timeline, write_timeline
from dynosim.sim.workload.columns import Workload
from workloads import workload, workloads

REQUIRED = {
    "M": {"name", "pid", "args"},
    "X": {"name", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "pid", "ts", "args"},
    "i": {"name", "pid", "tid", "ts", "s"},
    "b": {"name", "pid", "tid", "ts", "cat", "id"},
    "e": {"name", "pid", "tid", "ts", "cat", "id"},
}
"""What the format asks of each phase that is used."""


def run(load: Workload, **limits: Any) -> RunResult:
    values = {"max_num_seqs": 4, "max_num_batched_tokens": 256} | limits
    spec = ClusterSpec(
        timer=AffineTimer(),
        limits=EngineLimits(**values),
        num_blocks=40,
        max_model_len=10_000,
        replicas=2 if load.max_concurrency is None else 1,
    )
    return run_cluster(spec, load)


@settings(max_examples=60, deadline=None)
@given(load=workloads(), limit=st.sampled_from([1, 7, 40, 10_000]))
def test_events_are_valid_in_order_and_bounded(load: Workload, limit: int) -> None:
    found = timeline(run(load), None, limit=limit)
    timed = [event for event in found.events if event["ph"] != "M"]
    assert len(timed) <= limit
    for event in found.events:
        assert REQUIRED[event["ph"]] <= event.keys()
        assert event.get("dur", 0.0) >= 0.0
    stamps = [event["ts"] for event in timed]
    assert stamps == sorted(stamps)
    # Nestable async events of one id close in the opposite order, all of them.
    open_: dict[str, list[str]] = defaultdict(list)
    for event in timed:
        if event["ph"] == "b":
            open_[event["id"]].append(event["name"])
        elif event["ph"] == "e":
            assert open_[event["id"]].pop() == event["name"]
    assert not any(open_.values())
    # Steps of one track do not overlap.
    ends: dict[int, float] = defaultdict(float)
    for event in timed:
        if event["ph"] == "X" and event["tid"] == STEPS:
            assert event["ts"] >= ends[event["pid"]] - 0.002
            ends[event["pid"]] = event["ts"] + event["dur"]


def test_all_that_happened_is_in_it(tmp_path: Path) -> None:
    # Three of 13 blocks' worth in a pool of 40: the last one is preempted.
    result = run(workload([0.0] * 4, [200] * 4, [100] * 4), enable_prefix_caching=False)
    found = timeline(result, None)
    write_timeline(tmp_path / "t.json", found)
    document = json.loads((tmp_path / "t.json").read_text())
    events = document["traceEvents"]
    assert document["otherData"]["dropped_slices"] == 0
    kinds = Counter(event["name"] for event in events if event["ph"] in "bi")
    assert kinds["request"] == kinds["prefill"] == kinds["decode"] == 4
    slices = [event for event in events if event["ph"] == "X"]
    assert sum(e["args"]["steps"] for e in slices) == sum(len(r.steps) for r in result.replicas)
    assert sum(e["args"]["steps"] * e["args"]["prefill_tokens"] for e in slices) >= 800
    busy_s = sum(float(log.steps.durations_s.sum()) for log in result.replicas)
    assert sum(e["dur"] for e in slices) == pytest.approx(busy_s * 1e6, rel=1e-6)


def test_a_preemption_is_an_instant() -> None:
    # Two of 150 blocks' worth each in a pool of 40 blocks of 16 tokens: one must go.
    result = run_cluster(
        ClusterSpec(
            timer=AffineTimer(),
            limits=EngineLimits(max_num_seqs=4, max_num_batched_tokens=1024),
            num_blocks=40,
            max_model_len=10_000,
        ),
        workload([0.0, 0.0], [300, 300], [200, 200]),
    )
    assert result.preemptions.sum() == 1
    instants = [e for e in timeline(result, None).events if e["ph"] == "i"]
    assert [e["args"]["request"] for e in instants] == np.flatnonzero(result.preemptions).tolist()


@settings(max_examples=60, deadline=None)
@given(load=workloads(), interval_s=st.sampled_from([0.05, 1.0]))
def test_counters_rise_to_the_totals_of_the_run(load: Workload, interval_s: float) -> None:
    result = run(load)
    found = series(result, interval_s)
    totals = {name: sum(float(one[name][-1]) for one in found.engines) for name in COUNTERS}
    assert totals["vllm:prompt_tokens_total"] == load.input_tokens.sum()
    assert totals["vllm:generation_tokens_total"] == load.output_tokens.sum()
    assert totals["vllm:request_success_total"] == len(load)
    assert totals["vllm:prefix_cache_hits_total"] == result.cached_tokens.sum()
    for one in found.engines:
        for name in COUNTERS:
            assert (np.diff(one[name]) >= -1e-9).all(), name
        for name in GAUGES:
            assert (one[name] >= 0.0).all(), name
        assert (one["vllm:kv_cache_usage_perc"] <= 1.0).all()


def test_gauges_by_hand() -> None:
    # One slot; steps of 5 ms and little more. The second waits until the first has its 10 tokens.
    result = run(workload([0.0, 0.0], [16, 16], [10, 10], max_concurrency=2), max_num_seqs=1)
    (engine,) = series(result, 0.02).engines
    at = dict(zip((0.0, 0.02, 0.04, 0.06, 0.08, 0.1), range(6), strict=True))
    waiting, running = engine["vllm:num_requests_waiting"], engine["vllm:num_requests_running"]
    assert [waiting[at[t]] for t in (0.02, 0.04, 0.06, 0.08)] == [1, 1, 0, 0]
    assert running[at[0.02]] == running[at[0.08]] == 1
    assert engine["vllm:kv_cache_usage_perc"][at[0.02]] == 2 / 40


def test_series_are_written_as_csv_or_json(tmp_path: Path) -> None:
    found = series(run(workload([0.0, 0.3], [16, 16], [10, 10])), 0.1)
    write_series(tmp_path / "s.csv", found)
    head, *rows = (tmp_path / "s.csv").read_text().splitlines()
    assert head.split(",")[:3] == ["time_s", "engine", "vllm:num_requests_running"]
    assert len(rows) == 2 * len(found.time_s)
    write_series(tmp_path / "s.json", found)
    document = json.loads((tmp_path / "s.json").read_text())
    assert len(document["engines"]) == 2
    assert document["time_s"] == found.time_s.tolist()


@pytest.mark.parametrize("interval_s", [0.0, -1.0, float("nan"), 1e-9])
def test_intervals_that_make_no_table_are_refused(interval_s: float) -> None:
    with pytest.raises(UserError, match="series-interval-s"):
        series(run(workload([0.0], [16], [10])), interval_s)
