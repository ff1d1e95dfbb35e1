"""The frontier in the light of measurements, without a new simulation."""

from __future__ import annotations

import pytest

from dynosim.verification.preference import preference_of
from dynosim.verification.rescore import rescore_by_ratios
from stand_ins import GPU, USER, measured, run_of, trial

ONE, TWO, THREE = trial(1, 100.0, 80.0), trial(2, 300.0, 60.0), trial(3, 400.0, 20.0)
PAIR = trial(4, 150.0, 75.0, tensor_parallel_size=2)


def test_trials_of_a_kind_share_its_factor_and_others_that_of_all() -> None:
    run = run_of([ONE, TWO, THREE, PAIR])
    preference = preference_of(run)
    assert preference is not None
    found = rescore_by_ratios(run, [measured(ONE, (110, 80)), measured(TWO, (240, 60))], preference)
    by_number = {t.number: t.metrics for t in found.trials}
    # Measured trials as measured.
    assert by_number[1][GPU] == pytest.approx(110)
    assert by_number[2][GPU] == pytest.approx(240)
    # The geometric mean of 1.1 and 0.8; no trial of two GPUs was measured.
    factor = (1.1 * 0.8) ** 0.5
    assert by_number[3][GPU] == pytest.approx(400 * factor)
    assert by_number[4][GPU] == pytest.approx(150 * factor)
    assert by_number[4][USER] == pytest.approx(75)


def test_points_leave_and_enter_the_frontier() -> None:
    beside = trial(5, 290.0, 58.0, tensor_parallel_size=2)
    run = run_of([ONE, TWO, THREE, beside])
    preference = preference_of(run)
    assert preference is not None
    assert [t.number for t in run.frontier] == [1, 2, 3]
    found = rescore_by_ratios(
        run, [measured(TWO, (150, 30)), measured(beside, (290, 58))], preference
    )
    assert [t.number for t in found.frontier] == [1, 5] or 5 in found.entered
    assert 2 in found.left
    assert found.winner == 5
    assert found.lead == pytest.approx((290 * 58 / (150 * 30)) ** 0.5 - 1)


def test_equal_measurements_change_nothing() -> None:
    run = run_of([ONE, TWO, THREE])
    preference = preference_of(run)
    assert preference is not None
    found = rescore_by_ratios(run, [measured(TWO, (300, 60))], preference)
    assert (found.entered, found.left, found.winner, found.lead) == ((), (), 2, 0.0)
