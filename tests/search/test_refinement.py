"""Spaces too large to look at as a whole: a sample, and what is close to its best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analytic_evaluator import analytic, screen

import dynosim.search.plan as plan_module
from dynosim.search.frontier import hypervolume
from dynosim.search.grid import Grid
from dynosim.search.outcome import Outcome
from dynosim.search.plan import plan_search
from dynosim.search.refinement import refined, sampled, spread
from dynosim.search.screening import Screening
from dynosim.search.space import SearchSpace, parse_space
from dynosim.search.study import search

GRID = Grid(("a", "b", "c", "d", "e"), (10, 11, 12, 9, 9), (True,) * 5)


class Judge:
    """Estimates each index once; two losses with optima at opposite corners, and a ridge."""

    def __init__(self) -> None:
        self.looked: dict[int, None] = {}

    def __call__(self, indices: Sequence[int]) -> Screening | None:
        new = [i for i in dict.fromkeys(indices) if i not in self.looked]
        self.looked |= dict.fromkeys(new)
        at = GRID.coordinates_of(new).astype(float)
        if not new:
            return None
        penalty = (at[:, 1] - 4.0) ** 2
        penalty += at[:, 2] + at[:, 3] + at[:, 4]
        losses = np.column_stack((at[:, 0] + penalty, penalty - at[:, 0]))
        return Screening(candidates=new, losses=losses, margins=np.full(len(new), -1.0))


def points(found: Screening) -> set[tuple[float, ...]]:
    import moocore

    return set(map(tuple, found.losses[moocore.is_nondominated(found.losses)]))


def test_a_sample_has_one_index_of_each_stretch() -> None:
    chosen = spread(1000, 50, seed=3)
    assert [i // 20 for i in chosen] == list(range(50))
    assert spread(1000, 50, seed=3) == chosen != spread(1000, 50, seed=4)
    assert spread(7, 7, seed=0) == list(range(7))


def test_what_is_close_to_the_best_of_a_sample_reaches_the_true_front() -> None:
    judge = Judge()
    sample = sampled(spread(GRID.size, 20, seed=0), judge)
    assert sample is not None
    found = refined(GRID, sample, judge)
    whole = Judge()(range(GRID.size))
    assert whole is not None
    assert points(found) == points(whole)
    assert len(judge.looked) < GRID.size / 2


def test_no_candidate_that_differs_in_two_fields_from_the_front_is_better() -> None:
    judge = Judge()
    sample = sampled([0, 5], judge)
    assert sample is not None
    found = refined(GRID, sample, judge)
    front, every = points(found), GRID.coordinates_of(range(GRID.size))
    for index, losses in zip(found.candidates, found.losses, strict=True):
        if tuple(losses) in front:
            at = np.array(GRID.coordinates(int(index)))
            near = np.flatnonzero((every != at).sum(axis=1) <= 2)
            assert set(near.tolist()) <= judge.looked.keys()


def test_neighbours_differ_in_one_axis() -> None:
    near = list(GRID.neighbours(GRID.index((1, 2, 3, 4, 5))))
    assert len(set(near)) == len(near) == 9 + 10 + 11 + 8 + 8
    for index in near:
        assert (
            sum(x != y for x, y in zip(GRID.coordinates(index), (1, 2, 3, 4, 5), strict=True)) == 1
        )


class Estimated:
    """What the analytic evaluator gives, as an estimate."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space

    def __call__(self, candidates: Sequence[int]) -> Screening | None:
        rows, margins = [], []
        for index in candidates:
            outcome = analytic(self._space.deployment(index), None)  # type: ignore[arg-type]
            values = [outcome.metrics[o.metric] for o in self._space.objectives]
            rows.append(
                [-o.sign * np.log(v) for o, v in zip(self._space.objectives, values, strict=True)]
            )
            margins.append(outcome.instability)
        return Screening(candidates=candidates, losses=np.array(rows), margins=np.array(margins))


@pytest.fixture
def sampled_space(large_space: SearchSpace, monkeypatch: pytest.MonkeyPatch) -> SearchSpace:
    """The large space, too large to be looked at as a whole."""
    monkeypatch.setattr(plan_module, "SCREEN_ALL", 1000)
    monkeypatch.setattr(plan_module, "SAMPLE", 200)
    return large_space


def test_a_space_that_is_sampled_is_searched_as_well(
    sampled_space: SearchSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = search(
        sampled_space, n_trials=96, workers=1, evaluator=analytic, screen=screen,
        estimator=Estimated(sampled_space),
    )  # fmt: skip
    assert few.mode == "screened"
    assert few.screening is not None
    assert len(few.screening.candidates) < 1500 < sampled_space.size
    assert not few.importances, "a sample around the best says nothing of the whole"
    monkeypatch.setattr(plan_module, "SCREEN_ALL", 10_000)
    every = search(sampled_space, n_trials=10_000, workers=1, evaluator=analytic, screen=screen)
    volumes = [hypervolume(r.frontier, sampled_space.objectives, (0.0, 0.0)) for r in (few, every)]
    assert volumes[0] > 0.99 * volumes[1]


def test_the_answer_depends_on_the_seed_alone(sampled_space: SearchSpace, tmp_path: Path) -> None:
    def trials(name: str, **settings: Any) -> bytes:
        search(
            sampled_space, n_trials=48, output_dir=tmp_path / name, evaluator=analytic,
            screen=screen, estimator=Estimated(sampled_space), **settings,
        )  # fmt: skip
        return (tmp_path / name / "trials.csv").read_bytes()

    assert trials("one", workers=1) == trials("two", workers=2)
    short = search(
        sampled_space, n_trials=20, output_dir=tmp_path / "three", evaluator=analytic,
        screen=screen, estimator=Estimated(sampled_space), workers=1,
    )  # fmt: skip
    assert len(short.trials) == 20
    assert trials("three", workers=1, resume=True) == trials("one", workers=1, overwrite=True)


def test_nothing_estimated_is_sampled_by_tpe(sampled_space: SearchSpace) -> None:
    plan = plan_search(sampled_space, screen)
    assert plan.mode == "tpe"
    assert plan.screened == 200


def test_what_no_sample_can_run_is_left_to_tpe(small_values: dict[str, Any]) -> None:
    space = parse_space({**small_values, "max_num_seqs": {"min": 1, "max": 6000}})
    assert space.size > plan_module.SCREEN_ALL
    refusal = Outcome(reason="oom", detail="too large")
    plan = plan_search(space, lambda deployment: refusal, Estimated(space))
    assert plan.mode == "tpe"
    assert plan.refused["oom"] > 0
