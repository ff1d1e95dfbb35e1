"""Conditional fields, requirements, budgets, bounds, presets and included files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.search import SearchSpace, load_space, parse_space, search
from dynosim.search.bound import Bound
from dynosim.search.defaults import full_screen
from dynosim.search.included import presets
from dynosim.search.objective import Objective
from dynosim.search.outcome import Outcome, Task
from dynosim.search.slo import Slo
from dynosim.search.study import load_workload
from dynosim.sim.deployment import Deployment

MINIMAL: dict[str, Any] = {
    "model": "Qwen/Qwen3-32B",
    "gpu": "h200_sxm",
    "workload": {"num_prompts": 20, "request_rate": 2.0},
}


def space(**values: Any) -> SearchSpace:
    return parse_space({**MINIMAL, **values})


def refusal(**values: Any) -> str:
    with pytest.raises(UserError) as error:
        space(**values)
    return str(error.value)


def counted(deployment: Deployment, task: Task) -> Outcome:
    """An evaluator whose metrics are the deployment's own figures."""
    speed = 100.0 / (deployment.max_num_seqs or 1) * deployment.tensor_parallel_size
    return Outcome(
        metrics={"output_tok_s_per_gpu": 1000.0 / speed, "output_tok_s_per_user": speed,
                 "preemptions": float(deployment.replicas - 1)}
    )  # fmt: skip


def runs(deployment: Deployment) -> Outcome | None:
    return None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("tensor_parallel_size * replicas <= 4", {(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)}),
        ("tp*replicas<=2", {(1, 1), (1, 2), (2, 1)}),
        ("num_gpus == 16", {(4, 4)}),
        ("1 < tp <= 2 and not replicas in (2, 4)", {(2, 1)}),
        ("replicas % 2 == 1 or tp // 4 == 1", {(1, 1), (2, 1), (4, 1), (4, 2), (4, 4)}),
        ("gpu == 'H200' and tp - replicas >= 2", {(4, 1), (4, 2)}),
        ('gpu != "NVIDIA H200" or tp == 1 and replicas == 1', {(1, 1)}),
        ("max_model_len is null and tp + replicas == 8", {(4, 4)}),
        ("max_model_len == none and enforce_eager == false and tp * -1 == -1 "
         "and replicas == 4", {(1, 4)}),
    ],
)  # fmt: skip
def test_a_requirement_leaves_the_candidates_that_fulfil_it(
    text: str, kept: set[tuple[int, int]]
) -> None:
    found = space(tp=[1, 2, 4], replicas=[1, 2, 4], require=text)
    screen = full_screen(found, load_workload(found), runs)
    left = [d for d in found.deployments() if screen(d) is None]
    assert {(d.tensor_parallel_size, d.replicas) for d in left} == kept
    refused = next(o for d in found.deployments() if (o := screen(d)))
    assert (refused.reason, refused.detail) == ("requirement", f"not {text}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("replicsa <= 2", "require: unknown field 'replicsa'\n  nearest: replicas"),
        ("replicas <=", "require: not an expression"),
        ("__import__('os').system('true')", "is not allowed here"),
        ("replicas ** 99999 > 1", "is not allowed here"),
        ("replicas.real == 1", "`replicas.real` is not allowed here"),
        ("[r for r in (1, 2)]", "is not allowed here"),
        ("(lambda: 1)() == 1", "is not allowed here"),
        ("gpu == h200", "unknown field 'h200'"),
        ("gpu == 'h201'", "require: unknown gpu 'h201'\n  nearest"),
        ("backend in ('vllm', 'vlm')", "unknown backend 'vlm'"),
        ("kv_cache_dtype == 'fp9'", "nearest: fp8"),
        (3, "require: found 3"),
        (["tp <= 2", "tp <= q"], "require[1]: unknown field 'q'"),
    ],
)
def test_a_wrong_requirement_is_refused_where_it_stands(text: Any, message: str) -> None:
    assert message in refusal(tp=[1, 2], require=text)


def test_a_field_that_is_null_cannot_be_compared_by_size() -> None:
    found = space(max_num_seqs=[None, 8], require="max_num_seqs <= 64")
    screen = full_screen(found, load_workload(found), runs)
    with pytest.raises(UserError, match="require: cannot be judged where max_num_seqs = null"):
        screen(found.deployment(0))
    found = space(max_num_seqs=[None, 8], require="max_num_seqs is null or max_num_seqs * 2 <= 64")
    screen = full_screen(found, load_workload(found), runs)
    assert [screen(d) for d in found.deployments()] == [None, None]


CONDITIONAL = {
    "backend": ["vllm", "sglang"],
    "enable_mixed_chunk": [True, False],
    "schedule_conservativeness": [0.3, 1.0, 1.5],
    "when": {
        "enable_mixed_chunk": "backend == 'sglang'",
        "schedule-conservativeness": "enable_mixed_chunk",
    },
}
"""vllm once; sglang with mixed chunks thrice, without once: 5 candidates of 12 combinations."""


def test_a_conditional_field_has_its_default_where_its_condition_does_not_hold() -> None:
    found = space(**CONDITIONAL)
    deployments = [found.deployment(i) for i in range(found.size) if found.normal(i) == i]
    assert len(deployments) == len(set(deployments)) == 5
    assert set(deployments) == set(found.deployments())
    assert all(found.deployment(found.normal(i)) == found.deployment(i) for i in range(found.size))
    vllm = [d for d in deployments if d.backend == "vllm"]
    assert [(d.enable_mixed_chunk, d.schedule_conservativeness) for d in vllm] == [(False, 1.0)]


@pytest.mark.parametrize("n_trials", [4, 100])
def test_combinations_that_are_one_candidate_are_one_trial(n_trials: int) -> None:
    result = search(
        space(**CONDITIONAL), n_trials=n_trials, workers=1, evaluator=counted, screen=runs
    )
    assert result.mode == ("tpe" if n_trials == 4 else "exhaustive")
    deployments = [t.deployment for t in result.trials]
    assert len(deployments) == len(set(deployments)) == min(n_trials, 5)


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({"router": "replicas > 1"}, "when.router: the space gives this field no values"),
        ({"replicsa": "tp > 1"}, "nearest: replicas"),
        ({"model": "tp > 1"}, "model has no default to fall back on"),
        ({"replicas": "replicas > 1"}, "cannot ask for replicas itself"),
        ({"replicas": "tp >"}, "when.replicas: not an expression"),
        ("replicas", "when: found 'replicas'"),
    ],
)
def test_a_wrong_condition_is_refused_where_it_stands(when: Any, message: str) -> None:
    assert message in refusal(tp=[1, 2], replicas=[1, 2], when=when)


@pytest.mark.parametrize(
    ("budget", "reason", "detail"),
    [
        ({"max_gpus": 3}, "over_gpu_budget", "4 GPUs, budget 3"),
        ({"max_watts": 2000}, "over_watt_budget", "2,800 W of GPU boards, budget 2,000 W"),
        ({"max_usd_per_hour": 1}, "over_usd_budget", " USD/h, budget 1 USD/h"),
    ],
)
def test_budgets_are_in_gpus_watts_and_dollars(
    budget: dict[str, float], reason: str, detail: str
) -> None:
    found = space(tp=4, **budget)
    outcome = full_screen(found, load_workload(found), runs)(found.deployment(0))
    assert outcome is not None
    assert outcome.reason == reason
    assert outcome.detail.endswith(detail)


def test_a_budget_counts_both_pools_with_their_own_gpus() -> None:
    mixed = {"prefill_replicas": 2, "prefill_gpu": "l40s", "tp": 1}  # 700 W + 2 × 350 W
    for watts, reason in ((1400, None), (1399, "over_watt_budget")):
        found = space(**mixed, max_watts=watts)
        outcome = full_screen(found, load_workload(found), runs)(found.deployment(0))
        assert (outcome and outcome.reason) == reason


def test_bounds_on_any_metric() -> None:
    found = space(
        constraints={"quality": 0.98, "preemptions": {"max": 0}, "mean-queue-ms": {"max": 5}}
    )
    assert found.bounds == (
        Bound("quality", 0.98, True), Bound("preemptions", 0.0, False),
        Bound("mean_queue_ms", 5.0, False),
    )  # fmt: skip
    floor, none, queue = found.bounds
    assert str(floor) == "Accuracy retained ≥ 0.98"
    assert str(queue) == "mean queue time ≤ 5 ms"
    assert floor.violation({"quality": 0.99}) < 0 < floor.violation({"quality": 0.97})
    assert none.violation({"preemptions": 0.0}) <= 0 < none.violation({"preemptions": 1.0})
    assert queue.violation({"mean_queue_ms": 10.0}) == pytest.approx(1.0)
    assert queue.violation({}) == float("inf")
    assert parse_space(found.to_mapping()).bounds == found.bounds


def test_a_trial_beyond_a_bound_is_infeasible_and_says_so() -> None:
    bounded = space(replicas=[1, 2], constraints={"preemptions": 0})
    result = search(bounded, workers=1, evaluator=counted, screen=runs)
    assert [t.reason for t in result.trials] == [None, "constraint"]
    assert result.trials[1].detail == "Preemptions ≤ 0: found 1"


def test_a_quality_floor_costs_no_simulation() -> None:
    found = space(
        model=["Qwen/Qwen3-32B", "Qwen/Qwen3-32B-AWQ"], constraints={"quality": {"min": 0.995}}
    )
    screen = full_screen(found, load_workload(found), runs)
    assert [o and o.reason for o in map(screen, found.deployments())] == [None, "constraint"]


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ({"qualty": 1}, "constraints.qualty: unknown metric\n  nearest: quality"),
        ({"quality": "high"}, "constraints.quality: found 'high'"),
        ({"quality": {"least": 1}}, "constraints.quality.least: unknown key\n  allowed: min, max"),
        (3, "constraints: found 3"),
    ],
)
def test_a_wrong_bound_is_refused_where_it_stands(constraints: Any, message: str) -> None:
    assert message in refusal(constraints=constraints)


def test_every_preset_is_a_goal_for_any_space() -> None:
    assert presets() == ("batch", "code", "interactive", "min-cost", "min-gpus", "rag")
    for name in presets():
        assert space(preset=name).objectives
    chat = space(preset="interactive")
    assert chat.slos == (Slo("ttft", "p99", 450.0), Slo("tpot", "p99", 40.0))
    assert space(preset="min_gpus").objectives[0] == Objective("num_gpus", "minimize")
    assert "preset: unknown preset 'chat'" in refusal(preset="chat")


def test_a_space_overrides_its_preset_key_by_key() -> None:
    mine = space(preset="interactive", slos={"ttft": 300}, objectives=["ttft"])
    assert mine.slos == (Slo("ttft", "p99", 300.0), Slo("tpot", "p99", 40.0))
    assert mine.objectives == (Objective("p99_ttft_ms", "minimize"),)


def test_included_files_lie_below_and_errors_name_the_file(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "trace.jsonl").write_text("")
    (shared / "load.yaml").write_text("workload:\n  trace: trace.jsonl\n  limit: 5\nmax_gpus: 4\n")
    (shared / "hardware.yaml").write_text("gpu: [h100, h200]\ntp: [1, 2]\n")
    mine = tmp_path / "space.yaml"
    mine.write_text(
        "include: [shared/load.yaml, shared/hardware.yaml]\nmodel: Qwen/Qwen3-32B\ntp: 4\n"
        "workload: {limit: 7}\n"
    )
    found = load_space(mine)
    assert found.workload.trace == str(shared / "trace.jsonl")
    assert (found.workload.limit, found.max_gpus) == (7, 4)
    assert {d.name: d.values for d in found.dimensions} == {
        "model": ("Qwen/Qwen3-32B",), "gpu": ("h100", "h200"), "tensor_parallel_size": (4,),
    }  # fmt: skip
    (shared / "hardware.yaml").write_text("\ngpu: [h100, h201]\ntp: [1, 0]\n")
    with pytest.raises(UserError, match=r"hardware.yaml:2: gpu\[1\]: unknown gpu 'h201'"):
        load_space(mine)
    mine.write_text("include: shared/lod.yaml\n")
    with pytest.raises(UserError, match=r"space.yaml:1: include: no such file"):
        load_space(mine)
    mine.write_text("include: space.yaml\n")
    with pytest.raises(UserError, match="does one include itself"):
        load_space(mine)
