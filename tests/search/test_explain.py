"""Importance, short list, dominance, sensitivity, convergence: by hand where that can be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analytic_evaluator import analytic, screen
from hypothesis import given
from hypothesis import strategies as st

from dynosim.hardware_models.errors import UserError
from dynosim.search import SearchResult, SearchSpace, parse_space, search
from dynosim.search.convergence import convergence
from dynosim.search.dominance import dominator
from dynosim.search.explanation import explain_trial
from dynosim.search.importance import importances, shapley_effects
from dynosim.search.objective import Objective
from dynosim.search.result_document import result_document, trial_document
from dynosim.search.saved_run import load_run
from dynosim.search.sensitivity import sensitivity
from dynosim.search.short_list import covers, overrides, short_list
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment

OBJECTIVES = (Objective("output_throughput", "maximize"), Objective("p99_ttft_ms", "minimize"))


def trial(number: int, throughput: float, ttft_ms: float, **fields: Any) -> Trial:
    return Trial(
        number=number,
        deployment=Deployment(model="Qwen/Qwen3-32B", gpu="h200_sxm", **fields),
        metrics={"output_throughput": throughput, "p99_ttft_ms": ttft_ms},
    )


def grid(*lengths: int) -> np.ndarray:
    return np.stack(np.meshgrid(*map(np.arange, lengths), indexing="ij"), -1).reshape(
        -1, len(lengths)
    )


def test_of_a_sum_each_field_has_its_own_variance() -> None:
    # Var(3a) : Var(b) = 9 × 1/4 : 1/4 for two values each; c does nothing.
    at = grid(2, 2, 3)
    assert shapley_effects(at, 3.0 * at[:, 0] + at[:, 1]) == pytest.approx([0.9, 0.1, 0.0])


def test_what_two_fields_do_together_is_halved() -> None:
    at = grid(2, 2)
    assert shapley_effects(at, (at[:, 0] ^ at[:, 1]).astype(float)) == pytest.approx([0.5, 0.5])


def test_two_fields_that_always_go_together_share() -> None:
    at = np.array([[0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]])
    assert shapley_effects(at, at[:, 0] * 1.0) == pytest.approx([0.5, 0.5, 0.0])


@given(st.data())
def test_shares_sum_to_one_on_any_set_of_candidates(data: st.DataObject) -> None:
    rows = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=24, max_size=24)))
    at = grid(2, 3, 4)[rows]
    values = np.array([data.draw(st.floats(-1, 1)) for _ in rows])
    if len(rows) > 1 and values.var() > 1e-6:
        assert shapley_effects(at, values).sum() == pytest.approx(1.0)


def test_the_searched_fields_are_ranked_for_each_objective(small_space: SearchSpace) -> None:
    result = search(small_space, workers=1, evaluator=analytic, screen=screen)
    speed = result.importances[1]
    assert speed.metric == "output_tok_s_per_user"
    assert list(speed.shares)[:2] == ["max_num_seqs", "tensor_parallel_size"]
    assert sum(speed.shares.values()) == pytest.approx(1.0)
    assert result.landscape is not None
    assert importances(result.landscape) == result.importances


def test_within_one_percent_the_fewest_overrides_win() -> None:
    best = trial(0, 1000.0, 100.0, max_num_seqs=200, block_size=32)
    plain = trial(1, 992.0, 100.5)
    apart = trial(2, 500.0, 50.0, max_num_seqs=64)
    worse = trial(3, 980.0, 100.0)
    assert overrides(best.deployment) == {"max_num_seqs": 200, "block_size": 32}
    trials = [best, plain, apart, worse]
    assert covers([plain, worse], [best], OBJECTIVES).tolist() == [[True], [False]]
    assert short_list([apart, best], trials, OBJECTIVES) == [apart, plain]
    assert short_list([apart, best], trials, OBJECTIVES, first=best) == [apart, best]
    assert short_list([], [], OBJECTIVES) == []


def test_a_default_that_is_spelled_out_is_no_override() -> None:
    def spelled(deployment: Deployment) -> Deployment:
        from dataclasses import replace

        return replace(deployment, max_num_seqs=deployment.max_num_seqs or 256)

    one = trial(0, 1.0, 1.0, max_num_seqs=256).deployment
    assert overrides(one, spelled) == {}
    assert overrides(one) == {"max_num_seqs": 256}


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=30))
def test_the_short_list_stands_for_the_whole_frontier(points: list[tuple[int, int]]) -> None:
    trials = [trial(i, 100.0 + x / 3, 100.0 + y / 3) for i, (x, y) in enumerate(points)]
    from dynosim.search.frontier import frontier

    front = frontier(trials, OBJECTIVES)
    chosen = short_list(front, trials, OBJECTIVES)
    assert len(chosen) <= len(front)
    assert covers(chosen, front, OBJECTIVES).any(axis=0).all()


def test_why_a_trial_is_dominated() -> None:
    own = trial(0, 100.0, 200.0, replicas=2)
    close = trial(1, 101.0, 200.0, replicas=2, max_num_seqs=64)
    both = trial(2, 120.0, 150.0, replicas=2, block_size=32)
    found = dominator(own, [close, both, trial(3, 300.0, 400.0)], OBJECTIVES)
    assert found is not None
    assert found.trial is both
    assert found.gains == pytest.approx({"output_throughput": 0.2, "p99_ttft_ms": 0.25})
    assert found.changes == {"block_size": (None, 32)}
    assert dominator(both, [close, both], OBJECTIVES) is None


def test_when_the_hypervolume_stopped_growing() -> None:
    trials = [
        trial(0, 100.0, 200.0), trial(1, 90.0, 200.0), trial(2, 200.0, 100.0),
        trial(3, 150.0, 150.0),
    ]  # fmt: skip
    found = convergence(trials, OBJECTIVES)
    # Reference (0, 200): trial 0 touches it and adds nothing but is the first.
    assert [(g.simulations, g.trial, g.hypervolume) for g in found.gains] == [
        (1, 0, 0.0), (3, 2, 200.0 * 100.0),
    ]  # fmt: skip
    assert (found.simulations, found.idle, found.after(0.99)) == (4, 1, 3)
    assert convergence([], OBJECTIVES).idle == 0


@pytest.fixture
def run(small_values: dict[str, Any], tmp_path: Path) -> SearchResult:
    space = parse_space({**small_values, "max_gpus": 16})
    return search(space, workers=1, evaluator=analytic, screen=screen, output_dir=tmp_path / "run")


def test_what_one_changed_field_does_to_a_candidate(run: SearchResult) -> None:
    assert run.landscape is not None
    chosen = next(
        t for t in run.trials
        if t.deployment.tensor_parallel_size == 4 and t.deployment.replicas == 2
        and t.deployment.max_num_seqs == 128 and t.deployment.backend == "vllm"
    )  # fmt: skip
    steps = sensitivity(chosen.deployment, run.landscape, screen)
    named = {(s.field, s.value): s for s in steps}
    assert set(named) == {
        ("backend", "sglang"), ("backend", "trtllm"), ("tensor_parallel_size", 2),
        ("tensor_parallel_size", 8), ("replicas", 1), ("replicas", 4), ("max_num_seqs", 32),
        ("max_num_seqs", 512),
    }  # fmt: skip
    assert named["replicas", 4].reason.startswith("over_gpu_budget")
    slower = named["tensor_parallel_size", 2]
    assert slower.is_simulated
    assert slower.factors["output_tok_s_per_user"] < 1.0


def test_a_run_is_explained_from_its_folder(run: SearchResult) -> None:
    assert run.output_dir is not None
    saved = load_run(run.output_dir).result
    assert repr(saved.trials) == repr(run.trials)
    assert [t.number for t in saved.frontier] == [t.number for t in run.frontier]
    assert [i.metric for i in saved.importances] == [o.metric for o in run.space.objectives]
    lines = {t.number: "\n".join(explain_trial(saved, t.number, screen)) for t in run.trials}
    for point in run.frontier:
        assert "on the frontier" in lines[point.number]
    dominated = next(t for t in run.trials if t.is_feasible and t not in run.frontier)
    assert "dominated by trial" in lines[dominated.number]
    refused = next(t for t in run.trials if t.reason == "oom")
    assert "not simulated\ninfeasible, oom" in lines[refused.number]
    with pytest.raises(UserError, match="no trial 999"):
        explain_trial(saved, 999, screen)


def test_the_command_explains_a_run_and_a_trial(run: SearchResult) -> None:
    def printed(*flags: str) -> str:
        command = [sys.executable, "-m", "dynosim", "inspect", str(run.output_dir), *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == (2 if "--bad" in flags else 0), done.stderr
        return done.stdout

    assert "what decides Output speed per user: max_num_seqs" in printed()
    assert printed("--trial", str(run.frontier[0].number)).startswith("trial ")


def test_a_folder_without_a_run_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished run"):
        load_run(tmp_path)


def test_a_result_explains_its_own_trials(run: SearchResult) -> None:
    assert run.explain(0).splitlines() == explain_trial(run, 0, run.screen)
    saved = load_run(str(run.output_dir))
    assert saved.result.explain(0).splitlines() == explain_trial(saved.result, 0, saved.screen)
    with pytest.raises(UserError, match="no trial 999999"):
        run.explain(999999)


def test_neighbours_are_a_row_each(run: SearchResult) -> None:
    trial = run.frontier[0]
    assert run.landscape is not None
    steps = sensitivity(trial.deployment, run.landscape, run.screen)
    frame = run.neighbours(trial.number)
    assert list(frame.field) == [step.field for step in steps]
    speed = steps[0].factors["output_tok_s_per_user"] - 1.0
    assert frame.output_tok_s_per_user.iloc[0] == pytest.approx(speed)
    both = frame[["output_tok_s_per_user", "output_tok_s_per_gpu"]]
    assert not (both[frame.is_simulated] > 1e-9).all(axis=1).any()  # it is on the frontier


def test_a_result_is_plain_values_for_scripts(run: SearchResult) -> None:
    found = json.loads(json.dumps(result_document(run), allow_nan=False))
    assert [row["number"] for row in found["frontier"]] == [t.number for t in run.frontier]
    assert found["feasible"] + sum(found["infeasible"].values()) == found["trials"]
    assert found["frontier"][0]["metrics"]["request_goodput"] is None  # NaN has no JSON
    beaten = next(t for t in run.trials if t.is_feasible and t not in run.frontier)
    about = json.loads(json.dumps(trial_document(run, beaten.number), allow_nan=False))
    assert about["dominated_by"]["trial"] in {t.number for t in run.frontier}
    assert trial_document(run, run.frontier[0].number)["dominated_by"] is None
    assert len(about["neighbours"]) == len(run.neighbours(beaten.number))
