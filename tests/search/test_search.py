"""The whole search on an evaluator with a known answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from analytic_evaluator import analytic, fragile, screen

from dynosim.hardware_models.errors import UserError
from dynosim.search import parse_space, search
from dynosim.search.result import SearchResult
from dynosim.search.space import SearchSpace

COMPARED = ("frontier.csv", "trials.csv", "frontier.png", "manifest.json")


def brute_force(space: SearchSpace) -> set[tuple[float, float]]:
    """Objective values of the frontier, by definition."""
    points = []
    for deployment in space.deployments():
        if screen(deployment) is None and deployment.max_num_seqs != 8:
            metrics = analytic(deployment, None).metrics  # type: ignore[arg-type]
            points.append((metrics["output_tok_s_per_gpu"], metrics["output_tok_s_per_user"]))
    return {p for p in points if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points)}


def frontier_values(result: SearchResult) -> set[tuple[float, ...]]:
    return {t.values(result.space.objectives) for t in result.frontier}


def run(space: SearchSpace, folder: Path | None = None, workers: int = 1) -> SearchResult:
    return search(space, output_dir=folder, workers=workers, evaluator=analytic, screen=screen)


def contents(folder: Path) -> dict[str, bytes]:
    files = [folder / name for name in COMPARED] + sorted((folder / "candidates").iterdir())
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


def test_a_small_space_is_enumerated_and_its_frontier_is_the_true_one(
    small_space: SearchSpace,
) -> None:
    result = run(small_space)
    assert result.mode == "exhaustive"
    assert [t.deployment for t in result.trials] == list(small_space.deployments())
    assert frontier_values(result) == brute_force(small_space)


def test_infeasible_candidates_are_trials_with_their_reason(small_space: SearchSpace) -> None:
    result = run(small_space)
    by_reason = result.reasons
    # TP × replicas over 8: (4, 4), (8, 2), (8, 4) of 4 batch limits and 3 backends.
    assert by_reason["over_gpu_budget"] == 3 * 4 * 3
    assert by_reason["oom"] == 3  # TP 8, one replica, 512 sequences, three backends.
    assert by_reason["unstable_queue"] == 3 * (4 * 3 - 3)  # Eight sequences, within the budget.
    oom = next(t for t in result.trials if t.reason == "oom")
    assert oom.detail == "needs 90.1 GiB of 79.2 GiB"
    assert not oom.is_simulated


def test_a_large_space_is_sampled_once_per_candidate_and_close_to_its_frontier(
    large_space: SearchSpace,
) -> None:
    from dynosim.search.frontier import hypervolume

    result = search(large_space, n_trials=200, workers=1, evaluator=analytic, screen=screen)
    assert result.mode == "tpe"
    assert sum(t.is_simulated for t in result.trials) == 200
    assert len({t.deployment for t in result.trials}) == len(result.trials)
    whole = search(large_space, n_trials=10_000, workers=1, evaluator=analytic, screen=screen)
    reference = (0.0, 0.0)
    found = hypervolume(result.frontier, large_space.objectives, reference)
    true = hypervolume(whole.frontier, large_space.objectives, reference)
    assert found > 0.97 * true


def test_more_trials_continue_the_same_sequence(large_space: SearchSpace) -> None:
    few = search(large_space, n_trials=40, workers=1, evaluator=analytic, screen=screen)
    many = search(large_space, n_trials=56, workers=1, evaluator=analytic, screen=screen)
    assert [t.deployment for t in few.trials] == [
        t.deployment for t in many.trials[: len(few.trials)]
    ]


def test_same_bytes_serial_or_parallel(large_space: SearchSpace, tmp_path: Path) -> None:
    run(large_space, tmp_path / "serial", workers=1)
    run(large_space, tmp_path / "parallel", workers=2)
    assert contents(tmp_path / "serial") == contents(tmp_path / "parallel")


def test_another_seed_tries_other_candidates(large_space: SearchSpace) -> None:
    one = search(large_space, n_trials=20, workers=1, evaluator=analytic, screen=screen)
    two = search(large_space, n_trials=20, seed=1, workers=1, evaluator=analytic, screen=screen)
    assert {t.deployment for t in one.trials} != {t.deployment for t in two.trials}


def test_slos_are_constraints(small_space: SearchSpace, small_values: dict[str, object]) -> None:
    space = parse_space({**small_values, "slos": {"ttft": {"p99": 400}}})
    result = run(space)
    missed = [t for t in result.trials if t.reason == "slo"]
    assert missed
    assert all(t.metrics["p99_ttft_ms"] > 400 for t in missed)
    assert all(t.metrics["p99_ttft_ms"] <= 400 for t in result.trials if t.is_feasible)
    assert "p99 TTFT ≤ 400 ms: found 614.4 ms" in {t.detail for t in missed}


def test_a_bounded_metric_that_an_evaluator_does_not_report_is_missed(
    small_values: dict[str, object],
) -> None:
    space = parse_space({**small_values, "slos": {"e2el": 400}})
    result = run(space)
    assert result.reasons["slo"] > 0
    assert not result.frontier
    assert "p99 E2E latency ≤ 400 ms: not reported" in {t.detail for t in result.trials}


def test_a_candidate_that_raises_is_a_failed_trial_with_its_traceback(
    small_space: SearchSpace, tmp_path: Path
) -> None:
    result = search(
        small_space, output_dir=tmp_path / "run", workers=1, evaluator=fragile, screen=screen
    )
    failed = [t for t in result.trials if t.reason == "error"]
    assert {t.deployment.tensor_parallel_size for t in failed} == {4}
    assert failed[0].detail == "ZeroDivisionError: a defect at TP 4"
    assert "analytic_evaluator.py" in failed[0].traceback
    assert "a defect at TP 4" in (tmp_path / "run" / "failures.txt").read_text()
    assert result.frontier


def test_a_candidate_that_kills_its_worker_is_a_failed_trial(
    small_values: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNOSIM_TEST_KILL", "1")
    space = parse_space(
        {**small_values, "backend": "vllm", "replicas": 1, "max_num_seqs": [32, 128]}
    )
    result = search(space, workers=2, evaluator=fragile, screen=screen)
    reasons = {(t.deployment.tensor_parallel_size, t.reason) for t in result.trials}
    assert reasons == {(1, None), (2, None), (4, "error"), (8, "error")}


def test_a_folder_with_a_run_is_left_alone(small_space: SearchSpace, tmp_path: Path) -> None:
    run(small_space, tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(UserError, match=r"already holds a run .* nothing was changed") as error:
        run(small_space, tmp_path / "run")
    assert "--resume" in error.value.hint
    assert contents(tmp_path / "run") == before


def test_overwrite_replaces_a_run(small_space: SearchSpace, tmp_path: Path) -> None:
    search(
        small_space,
        n_trials=5,
        output_dir=tmp_path,
        workers=1,
        evaluator=analytic,
        screen=screen,
    )
    result = search(
        small_space,
        n_trials=7,
        output_dir=tmp_path,
        overwrite=True,
        workers=1,
        evaluator=analytic,
        screen=screen,
    )
    assert result.simulated_here == 7


def test_a_passed_deadline_keeps_what_was_done(small_space: SearchSpace) -> None:
    result = search(small_space, timeout_s=1e-9, workers=1, evaluator=analytic, screen=screen)
    assert result.ending == "timeout"
    assert result.trials == ()
    assert result.frontier == []
    assert result.knee is None


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"n_trials": 0}, "n_trials"),
        ({"n_trials": True}, "n_trials"),
        ({"seed": -1}, "seed"),
        ({"workers": 0}, "workers"),
        ({"timeout_s": float("nan")}, "timeout"),
        ({"table_format": "xlsx"}, "table_format"),
    ],
)
def test_settings_out_of_range_are_refused(
    small_space: SearchSpace, settings: dict[str, object], where: str
) -> None:
    with pytest.raises(UserError) as error:
        search(small_space, evaluator=analytic, screen=screen, **settings)  # type: ignore[arg-type]
    assert error.value.where == where
