"""Order, regret and verdict of hand-made measurements, worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dynosim.search.result import SearchResult
from dynosim.verification.comparison import Row
from dynosim.verification.measured import Measured
from dynosim.verification.preference import Preference, preference_of
from dynosim.verification.ranking import rank, rank_by_preference
from dynosim.verification.regret import regret_of
from dynosim.verification.rescore import rescore_by_ratios
from dynosim.verification.verdict import Verdict, verdict_of
from stand_ins import GPU, USER, measured, run_of, trial

FAST, KNEE, FULL = trial(1, 100.0, 80.0), trial(2, 300.0, 60.0), trial(3, 400.0, 20.0)
RUN = run_of([FAST, KNEE, FULL])
# Extents: ln 4 in throughput, ln 4 in speed; so each objective weighs a half.


def preference(run: SearchResult = RUN) -> Preference:
    found = preference_of(run)
    assert found is not None
    return found


def judged(*picks: Measured, run: SearchResult = RUN, rescores: bool = True) -> Verdict:
    wanted = preference(run)
    rescored = rescore_by_ratios(run, picks, wanted) if rescores else None
    return verdict_of(picks, [()] * len(picks), wanted, regret_of(picks, wanted), rescored)


def test_the_knee_maximises_its_own_preference() -> None:
    found = preference()
    assert found.recommended is KNEE
    assert found.weights == pytest.approx({GPU: 0.5, USER: 0.5})
    assert found.score(KNEE.metrics) == pytest.approx(0.5 * math.log(300 * 60))


def test_medians_and_spread() -> None:
    one = measured(KNEE, (300, 60), (310, 63), (280, 57))
    assert (one.metrics[GPU], one.metrics[USER]) == (300, 60)
    assert one.spread(GPU) == pytest.approx(30 / 300)
    assert math.isnan(measured(KNEE, (300, 60)).spread(GPU))


def test_kendall_tau_counts_pairs() -> None:
    # Predicted 100 < 300 < 400, measured 100 < 420 > 400: one of three pairs is turned.
    picks = [measured(FAST, (100, 80)), measured(KNEE, (420, 60)), measured(FULL, (400, 20))]
    found = rank(picks, GPU)
    assert found.tau == pytest.approx(1 / 3)
    assert (found.kept, len(found.pairs)) == (2, 3)
    assert [(p.first, p.second) for p in found.pairs if not p.is_kept] == [(2, 3)]


def test_a_gap_within_the_noise_is_no_pair() -> None:
    # ln(400/300) = 0.29; each spreads by 0.25, both by 0.35.
    noisy = (0.875, 1.0, 1.125)
    picks = [
        measured(KNEE, *((300 * f, 60) for f in noisy)),
        measured(FULL, *((290 * f, 20) for f in noisy)),
    ]
    assert rank(picks, GPU).pairs == ()
    assert rank(picks, GPU).tau == -1.0


def test_regret_is_the_shortfall_from_the_best_measured() -> None:
    picks = [measured(KNEE, (300, 60)), measured(FAST, (200, 100))]
    found = regret_of(picks, preference())
    assert found is not None
    assert (found.pick, found.best) == (2, 1)
    assert found.share == pytest.approx(1 - math.sqrt(300 * 60 / (200 * 100)))
    assert rank_by_preference(picks, preference()).kept == 0


def test_no_regret_where_the_pick_is_best() -> None:
    found = regret_of([measured(KNEE, (300, 60)), measured(FAST, (100, 80))], preference())
    assert found is not None
    assert (found.best, found.share, found.noise) == (2, 0.0, 0.0)


def test_confirmed() -> None:
    found = judged(measured(KNEE, (290, 59), (300, 60)), measured(FAST, (110, 81)))
    assert (found.word, found.winner) == ("confirmed", 2)
    assert found.reasons == (
        "trial 2 is best of the 2 measured",
        "it stays the choice when the frontier is scored anew with what was measured",
    )


def test_changed_by_another_that_is_better_beyond_the_noise() -> None:
    found = judged(
        measured(KNEE, (200, 40), (202, 40)), measured(FAST, (150, 80), (151, 80)), rescores=False
    )
    assert (found.word, found.winner) == ("changed", 1)
    assert "trial 1 was measured" in found.reasons[0]


def test_better_by_no_more_than_the_noise_confirms() -> None:
    found = judged(
        measured(KNEE, (200, 58), (220, 58)), measured(FAST, (150, 80), (165, 80)), rescores=False
    )
    assert found.word == "confirmed"
    assert "no more than repeats differ by" in found.reasons[0]


def test_drifting_repeats_decide_nothing() -> None:
    found = judged(measured(KNEE, (200, 60), (240, 60)), measured(FAST, (100, 80)))
    assert found.word == "inconclusive"
    assert "repeats of trial 2 differ by 18% in Output throughput per GPU" in found.reasons[0]


def test_the_cheapest_rests_on_its_measurements_too() -> None:
    run = run_of([FAST, FULL])
    cheapest = preference(run).recommended
    other = FULL if cheapest is FAST else FAST
    found = judged(measured(cheapest, (100, 80), (130, 80)), measured(other, (90, 70)), run=run)
    assert found.word == "inconclusive"
    steady = judged(measured(cheapest, (100, 80), (101, 80)), measured(other, (90, 70)), run=run)
    assert steady.word == "confirmed"
    assert "no other measured trial is cheaper" in steady.reasons[0]


def test_drift_of_a_trial_far_behind_does_not_matter() -> None:
    found = judged(measured(KNEE, (300, 60), (300, 60)), measured(FAST, (50, 70), (80, 70)))
    assert found.word == "confirmed"


def test_a_recommended_trial_whose_engine_fails_is_changed_for_the_best_that_runs() -> None:
    dead = measured(KNEE, failure="out of memory", has_died=True)
    found = judged(dead, measured(FAST, (100, 80)))
    assert (found.word, found.winner) == ("changed", 1)
    assert "does not run: out of memory" in found.reasons[0]


def test_a_recommended_trial_that_a_target_cannot_run_is_no_worse_for_it() -> None:
    found = judged(measured(KNEE, failure="starts one replica"), measured(FAST, (100, 80)))
    assert (found.word, found.winner) == ("inconclusive", 2)
    assert "could not be measured: starts one replica" in found.reasons[0]


def test_a_broken_limit_changes_the_choice() -> None:
    run = run_of([FAST, KNEE, FULL], constraints={USER: {"min": 50}})
    # FULL breaks it by prediction too.
    wanted = preference(run)
    picks = [measured(wanted.recommended, (300, 45)), measured(FAST, (100, 75))]
    found = judged(*picks, run=run)
    assert found.word == "changed"
    assert found.winner == 1
    assert "measured at 45; the limit is Output speed per user ≥ 50" in found.reasons[0]


def test_limits_hold_for_the_load_of_the_run_not_for_a_shorter_one() -> None:
    run = run_of([FAST, KNEE, FULL], constraints={USER: {"min": 50}})
    wanted = preference(run)
    searched = wanted.recommended
    # Fewer requests: predicted and measured at half the speed, so it keeps the limit as predicted.
    sent = replace(searched, metrics={**searched.metrics, USER: searched.metrics[USER] / 2})
    one = measured(sent, (searched.metrics[GPU], searched.metrics[USER] / 2))
    one = replace(one, pick=replace(one.pick, searched=searched))
    assert one.under_run_load[USER] == pytest.approx(searched.metrics[USER])
    regret = regret_of([one, measured(FULL, (100, 60))], wanted)
    assert regret is not None
    assert not regret.is_broken


def test_one_trial_alone_is_judged_by_its_intervals() -> None:
    one = measured(KNEE, (300, 60))
    wanted = preference()
    inside = Row(metric=GPU, predicted=300, measured=300, spread=math.nan, interval=(250, 350))
    outside = Row(metric=USER, predicted=60, measured=60, spread=math.nan, interval=(80, 90))
    regret = regret_of([one], wanted)
    assert verdict_of([one], [(inside,)], wanted, regret, None).word == "confirmed"
    found = verdict_of([one], [(inside, outside)], wanted, regret, None)
    assert found.word == "inconclusive"
    assert "outside of the predicted interval in Output speed per user" in found.reasons[0]


def test_a_trial_nobody_measured_may_leave_it_open() -> None:
    # Of another kind than the knee's, so that what the knee misses says nothing of it.
    other = trial(4, 290.0, 61.0, tensor_parallel_size=2)
    third = trial(5, 90.0, 79.0, tensor_parallel_size=2)
    run = run_of([FAST, KNEE, FULL, other, third])
    found = judged(measured(KNEE, (150, 30)), measured(third, (60, 70)), run=run)
    assert found.word == "inconclusive"
    assert "trial 4 would be" in found.reasons[0]
    assert "give it to --trials" in found.reasons[0]


def test_what_was_not_asked_for_cannot_be_judged() -> None:
    found = judged(measured(FAST, (100, 80)))
    assert found.word == "inconclusive"
    assert "was not among those measured" in found.reasons[0]
