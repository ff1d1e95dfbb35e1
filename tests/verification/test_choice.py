"""Which trials are worth measuring: hand-made frontiers with a known answer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.hardware_models.errors import UserError
from dynosim.search.result import SearchResult
from dynosim.verification.choice import FAR, choose, named, shortfalls
from dynosim.verification.preference import preference_of
from stand_ins import run_of, trial

# Throughput against speed: 1 and 5 are the ends, 3 bulges most, 6 and 7 are dominated.
FRONT = [(1, 100, 80), (2, 150, 78), (3, 400, 70), (4, 420, 40), (5, 440, 20)]
BEHIND = [(6, 380, 66), (7, 90, 40), (8, 200, 30), (9, 30, 10)]


@pytest.fixture
def run() -> SearchResult:
    return run_of([trial(n, a, b) for n, a, b in FRONT + BEHIND])


def chosen(run: SearchResult, **settings: object) -> list[int]:
    preference = preference_of(run)
    assert preference is not None
    return [p.number for p in choose(run, preference, **settings)]  # type: ignore[arg-type]


def test_the_recommended_trial_comes_first_then_the_ends(run: SearchResult) -> None:
    assert chosen(run, top=1) == [3]
    assert chosen(run, top=3) == [3, 1, 5]


def test_a_wide_interval_goes_before_a_little_more_distance(run: SearchResult) -> None:
    assert chosen(run, top=2) == [3, 1]
    assert chosen(run, top=2, widths={5: 1.0, 1: 0.1, 2: 0.1, 3: 0.1, 4: 0.1}) == [3, 5]


def test_every_pick_says_why(run: SearchResult) -> None:
    preference = preference_of(run)
    assert preference is not None
    wide = {5: math.log(2.0), 3: 0.1}
    picks = choose(run, preference, top=3, dominated=1, widths=wide)
    assert [p.reason for p in picks] == [
        "the run's knee",
        "the frontier's best output throughput per GPU, widest predicted interval (a factor of 2)",
        "the frontier's best output speed per user",
        "control, 100% behind",
    ]
    assert [p.is_control for p in picks] == [False, False, False, True]


def test_a_close_rival_is_named_as_such() -> None:
    run = run_of([trial(1, 100, 80), trial(2, 400, 70), trial(3, 415, 68), trial(4, 440, 20)])
    preference = preference_of(run)
    assert preference is not None
    picks = choose(run, preference, top=4)
    assert picks[0].number == 3
    other = next(p for p in picks if p.number == 2)
    assert "a close rival of trial 3 (0." in other.reason


def test_controls_are_far_behind_and_spread(run: SearchResult) -> None:
    front = run.frontier
    gaps = dict(
        zip((6, 7, 8, 9), shortfalls(run.trials[5:], front, run.space.objectives), strict=True)
    )
    assert gaps[6] == pytest.approx(math.log(400 / 380))
    assert gaps[7] == pytest.approx(math.log(70 / 40))
    assert gaps[6] < FAR
    assert chosen(run, top=1, dominated=3) == [3, 7, 8, 9]
    assert chosen(run, top=1, dominated=1) == [3, 8]


def test_where_the_frontier_is_short_those_next_behind_it_follow() -> None:
    one = run_of(
        [trial(n, 100.0 - n, 50.0 - n) for n in range(4)],
        objectives=["output_tok_s_per_gpu"],
    )
    preference = preference_of(one)
    assert preference is not None
    picks = choose(one, preference, top=3)
    assert [p.number for p in picks] == [0, 1, 2]
    assert picks[1].reason == "next behind the frontier, by 1.0%"


def test_no_more_picks_than_trials(run: SearchResult) -> None:
    assert sorted(chosen(run, top=50, dominated=50)) == list(range(1, 10))


def test_named_trials_stay_in_the_order_given(run: SearchResult) -> None:
    picks = named(run, (7, 3, 7))
    assert [(p.number, p.is_control) for p in picks] == [(7, True), (3, False)]


def test_a_number_that_is_no_trial(run: SearchResult) -> None:
    with pytest.raises(UserError, match="no trial 99"):
        named(run, (99,))


@given(
    points=st.lists(
        st.tuples(st.floats(1, 1000), st.floats(1, 1000)), min_size=1, max_size=12, unique=True
    ),
    top=st.integers(1, 6),
    dominated=st.integers(0, 3),
)
def test_picks_are_distinct_and_hold_the_recommended(
    points: list[tuple[float, float]], top: int, dominated: int
) -> None:
    run = run_of([trial(n, a, b) for n, (a, b) in enumerate(points)])
    preference = preference_of(run)
    assert preference is not None
    picks = choose(run, preference, top=top, dominated=dominated)
    numbers = [p.number for p in picks]
    assert numbers[0] == preference.recommended.number
    assert len(set(numbers)) == len(numbers) <= top + dominated
    front = {t.number for t in run.frontier}
    assert all(p.number not in front for p in picks if p.is_control)
