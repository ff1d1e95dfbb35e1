"""The flat options: which go together, and what a contradiction says."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import ALIASES, WorkloadSpec

VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n1,10,5\n3,20,6\n5,30,7\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "vidur.csv"
    path.write_text(VIDUR)
    return str(path)


def refusal(**options: object) -> str:
    with pytest.raises(UserError) as caught:
        build_workload(WorkloadSpec(**options))  # type: ignore[arg-type]
    return str(caught.value)


def test_trace_options_reach_the_reader(trace: str) -> None:
    spec = WorkloadSpec(trace=trace, trace_format="vidur", rate_scale=2, limit=2, max_concurrency=1)
    load = build_workload(spec)
    assert load.arrival_s.tolist() == [0.0, 1.0]
    assert load.max_concurrency == 1
    assert load.name == "vidur.csv"


def test_num_prompts_limits_a_trace_as_in_vllm(trace: str) -> None:
    assert len(build_workload(WorkloadSpec(trace=trace, num_prompts=2))) == 2
    assert "`limit` is 1 but `num_prompts` is 2" in refusal(trace=trace, num_prompts=2, limit=1)


def test_a_rate_and_a_cap_go_together() -> None:
    load = build_workload(WorkloadSpec(request_rate=4.0, max_concurrency=3, num_prompts=9))
    assert load.max_concurrency == 3
    assert load.arrival_s[-1] > 0


@pytest.mark.parametrize(
    ("options", "one", "other"),
    [
        ({"trace": "t", "random_input_len": 5}, "trace", "random_input_len"),
        ({"trace": "t", "random_range_ratio": 0.5}, "trace", "random_range_ratio"),
        ({"trace": "t", "lengths_from": "u"}, "trace", "lengths_from"),
        ({"trace": "t", "request_rate": 5.0}, "trace", "request_rate"),
        ({"trace": "t", "burstiness": 5.0}, "trace", "burstiness"),
        ({"trace": "t", "random_prefix_len": 5}, "trace", "random_prefix_len"),
        ({"lengths_from": "u", "random_output_len": 5}, "lengths_from", "random_output_len"),
        (
            {"random_range_ratio": 0.5, "random_input_cv": 1.0},
            "random_range_ratio",
            "random_input_cv",
        ),
    ],
)
def test_options_that_exclude_each_other_are_both_named(
    options: dict[str, object], one: str, other: str
) -> None:
    assert f"{other}: `{one}` and `{other}` exclude each other" in refusal(**options)


@pytest.mark.parametrize(
    ("options", "one", "needed"),
    [
        ({"rate_scale": 2.0}, "rate_scale", "trace"),
        ({"jitter_ticks": True}, "jitter_ticks", "trace"),
        ({"limit": 3}, "limit", "trace"),
        ({"trace_format": "azure"}, "trace_format", "trace"),
        ({"burstiness": 2.0}, "burstiness", "request_rate"),
        ({"num_prefixes": 3}, "num_prefixes", "random_prefix_len"),
        ({"prefix_zipf": 1.0}, "prefix_zipf", "random_prefix_len"),
        (
            {"random_range_convention": "inferencex"},
            "random_range_convention",
            "random_range_ratio",
        ),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    options: dict[str, object], one: str, needed: str
) -> None:
    assert f"`{one}` needs `{needed}`" in refusal(**options)


def test_all_contradictions_are_named_at_once() -> None:
    message = refusal(limit=3, burstiness=2.0)
    assert "`limit` needs `trace`" in message
    assert "`burstiness` needs `request_rate`" in message


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"num_prompts": -3}, "num_prompts: `num_prompts` is -3\n  allowed: >= 1"),
        ({"request_rate": math.nan}, "request_rate: `request_rate` is nan\n  allowed: > 0"),
        ({"random_range_ratio": 1.5}, "allowed: <= 1"),
        ({"random_range_ratio": 1.0}, "allowed: 0 <= ratio < 1 (vllm convention)"),
        ({"seed": -1}, "seed: `seed` is -1\n  allowed: >= 0"),
    ],
)
def test_a_value_out_of_range_is_refused(options: dict[str, object], allowed: str) -> None:
    assert allowed in refusal(**options)


def test_aliases_lead_to_options() -> None:
    names = {field.name for field in fields(WorkloadSpec)}
    assert set(ALIASES.values()) <= names
    assert not set(ALIASES) & names
