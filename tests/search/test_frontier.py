"""Frontier, knee and hypervolume on points small enough to check by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.search.frontier import cheapest, frontier, hypervolume, knee, reference_point
from dynosim.search.objective import DEFAULT_OBJECTIVES, Objective
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment

FASTER = Objective("p99_ttft_ms", "minimize")


def trial(number: int, per_gpu: float, per_user: float, replicas: int = 1, **more: Any) -> Trial:
    metrics = {"output_tok_s_per_gpu": per_gpu, "output_tok_s_per_user": per_user}
    metrics |= more.pop("metrics", {})
    deployment = Deployment(model="m", gpu="g", replicas=replicas)
    return Trial(number=number, deployment=deployment, metrics=metrics, **more)


def numbers(trials: list[Trial]) -> list[int]:
    return [t.number for t in trials]


def test_frontier_by_hand() -> None:
    trials = [trial(0, 1, 9), trial(1, 5, 5), trial(2, 4, 5), trial(3, 9, 1), trial(4, 3, 3)]
    assert numbers(frontier(trials, DEFAULT_OBJECTIVES)) == [0, 1, 3]


def test_infeasible_trials_neither_stand_on_the_frontier_nor_dominate() -> None:
    trials = [trial(0, 5, 5), trial(1, 9, 9, reason="slo")]
    assert numbers(frontier(trials, DEFAULT_OBJECTIVES)) == [0]


def test_of_equal_trials_the_one_with_fewer_gpus_stays() -> None:
    trials = [trial(0, 5, 5, replicas=4), trial(1, 5, 5, replicas=2), trial(2, 5, 5, replicas=2)]
    assert numbers(frontier(trials, DEFAULT_OBJECTIVES)) == [1]


def test_directions_count() -> None:
    objectives = (DEFAULT_OBJECTIVES[0], FASTER)
    trials = [
        trial(0, 5, 0, metrics={"p99_ttft_ms": 100.0}),
        trial(1, 5, 0, metrics={"p99_ttft_ms": 50.0}),
        trial(2, 6, 0, metrics={"p99_ttft_ms": 200.0}),
    ]
    assert numbers(frontier(trials, objectives)) == [1, 2]
    # Reference: 0 tok/s/GPU and the worst latency, 200 ms: a rectangle of 5 × 150.
    reference = reference_point(trials, objectives)
    assert reference == (0.0, 200.0)
    assert hypervolume(frontier(trials, objectives), objectives, reference) == 750.0


def test_one_objective_has_its_best_trial_as_frontier() -> None:
    trials = [trial(0, 5, 1), trial(1, 7, 0), trial(2, 6, 9)]
    assert numbers(frontier(trials, DEFAULT_OBJECTIVES[:1])) == [1]


def test_hypervolume_by_hand() -> None:
    """Steps 1×9, 4×5 and 4×1 above the origin."""
    front = [trial(0, 1, 9), trial(1, 5, 5), trial(2, 9, 1)]
    assert hypervolume(front, DEFAULT_OBJECTIVES, (0.0, 0.0)) == 9 + 20 + 4
    assert hypervolume([], DEFAULT_OBJECTIVES, (0.0, 0.0)) == 0.0


def test_knee_by_hand() -> None:
    """Logarithms to base 9: (0, 1), (0.886, 0.946), (1, 0), the middle 0.83 beyond the chord."""
    front = [trial(0, 1, 9), trial(1, 7, 8), trial(2, 9, 1)]
    assert knee(front, DEFAULT_OBJECTIVES) is front[1]


def test_the_knee_of_an_objective_that_reaches_zero_is_linear() -> None:
    """Across 0, 7/9, 1 linear, up 1, 0.946, 0 logarithmic."""
    front = [trial(0, 0, 9), trial(1, 7, 8), trial(2, 9, 1)]
    assert knee(front, DEFAULT_OBJECTIVES) is front[1]


def test_the_knee_of_a_latency_is_towards_less() -> None:
    objectives = (DEFAULT_OBJECTIVES[0], FASTER)
    latencies_ms = (10.0, 20.0, 1000.0)
    front = [
        trial(i, per_gpu, 0, metrics={"p99_ttft_ms": ms})
        for i, (per_gpu, ms) in enumerate(zip((1, 8, 9), latencies_ms, strict=True))
    ]
    assert knee(front, objectives) is front[1]


@pytest.mark.parametrize(
    "points", [[(1, 9), (9, 1)], [(1, 9), (3, 3), (9, 1)], [(1, 9), (2, 2), (9, 1)], []]
)
def test_a_straight_or_hollow_frontier_has_no_knee(points: list[tuple[float, float]]) -> None:
    front = [trial(i, *p) for i, p in enumerate(points)]
    assert knee(front, DEFAULT_OBJECTIVES) is None


def test_the_cheapest_is_by_price_then_by_speed() -> None:
    def priced(number: int, per_user: float, usd: float, **more: Any) -> Trial:
        return trial(number, 1, per_user, metrics={"usd_per_hour": usd}, **more)

    trials = [
        priced(0, 5, 4.0),
        priced(1, 7, 2.0),
        priced(2, 9, 2.0),
        priced(3, 9, 1.0, reason="slo"),
    ]
    found = cheapest(trials, DEFAULT_OBJECTIVES)
    assert found is trials[2]
    assert cheapest(trials[3:], DEFAULT_OBJECTIVES) is None


def test_without_prices_fewer_gpus_are_cheaper() -> None:
    trials = [trial(0, 1, 9, replicas=2), trial(1, 1, 1, replicas=1)]
    assert cheapest(trials, DEFAULT_OBJECTIVES) is trials[1]


POINTS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), max_size=30)


@given(POINTS)
def test_every_trial_is_on_the_frontier_or_no_better_than_one_that_is(
    points: list[tuple[int, int]],
) -> None:
    trials = [trial(i, *p) for i, p in enumerate(points)]
    front = [t.values(DEFAULT_OBJECTIVES) for t in frontier(trials, DEFAULT_OBJECTIVES)]
    assert len(set(front)) == len(front)
    for point in points:
        assert any(f[0] >= point[0] and f[1] >= point[1] for f in front)
    for f in front:
        assert not any(p != f and p[0] >= f[0] and p[1] >= f[1] for p in points)


@given(POINTS, st.tuples(st.integers(1, 20), st.integers(1, 20)))
def test_hypervolume_never_falls_with_another_trial(
    points: list[tuple[int, int]], more: tuple[int, int]
) -> None:
    trials = [trial(i, *p) for i, p in enumerate(points)]
    volumes = [
        hypervolume(frontier(some, DEFAULT_OBJECTIVES), DEFAULT_OBJECTIVES, (0.0, 0.0))
        for some in (trials, [*trials, trial(len(trials), *more)])
    ]
    assert volumes[0] <= volumes[1]
